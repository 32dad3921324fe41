"""Names of the directories and description files of a YOLO data set."""

import os
import re

from jaxtrain.data.classes import SPLITS
from jaxtrain.data.folder_scan import holds_folders
from jaxtrain.data.formats import is_image
from jaxtrain.data.image_files import shown

IMAGES, LABELS = b"images", b"labels"
LIST = b".txt"
YAML = (b"data.yaml", b"data.yml")
# Common names, in lower case, of files with one class name per line.
CLASSES = (b"classes.txt", b"obj.names", b"_darknet.labels")
# CVAT's directory names look like obj_train_data, COCO's like train2017.
FOLDER_OF_SPLIT = re.compile(r"obj_([a-z]+)_data|(train|val|test)[-_]?\d{4}")


def split_of(name: bytes | str) -> str | None:
    """Return the split that a directory name denotes, or None."""
    text = shown(name).lower()
    match = FOLDER_OF_SPLIT.fullmatch(text)
    return SPLITS.get((match[1] or match[2]) if match else text)


def is_yolo(place: str) -> bool:
    """Whether a directory has the layout of a YOLO data set."""
    root = os.fsencode(place)
    names = [name for name in os.listdir(root) if not name.startswith(b".")]
    lower = {name.lower() for name in names}
    if lower & {*YAML, *CLASSES[1:]} or holds_folders(root, IMAGES, LABELS):
        return True
    if CLASSES[0] in lower:
        stems = {os.path.splitext(name)[0] for name in names if is_image(name)}
        return any(stem + LIST in names for stem in stems)
    folders = [os.path.join(root, name) for name in names if split_of(name)]
    return any(holds_folders(p, IMAGES, LABELS) for p in folders if os.path.isdir(p))
