"""Source: a selection of examples of a store, in the configured size and channels."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrain.data import canvas, files, images, memory
from jaxtrain.data.batch import BOX
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.fit import FIT, Fit
from jaxtrain.data.images_with_targets import read_with_targets
from jaxtrain.data.input_kind import InputKind, input_of
from jaxtrain.data.random_windows import Box
from jaxtrain.data.stores import ArrayStore, Images, Store, targets_of
from jaxtrain.data.target_transform import transform_of
from jaxtrain.errors import UserError


@dataclass(frozen=True)
class Source:
    """Examples of a split, converted to one shape. Picklable, for data workers.

    Attributes:
      store: Store with the examples.
      indices: Indices of the split's examples in the store, (N,).
      image_shape: Shape (H, W, C) of the images that `read` returns.
      max_pixels: Maximum number of pixels; larger image files are unreadable.
      fit: Conversion of images to `image_shape`. Random crops require `fit.window`.
      change: Function (batch, example indices) -> batch, applied to the result of
        `read`.
      stored_size: Measured height and width of the stored images. Defaults to
        `store.image_shape`.
    """

    store: Store
    indices: np.ndarray
    image_shape: tuple[int, int, int]
    max_pixels: int
    fit: Fit = FIT
    change: Callable[[dict[str, Any], np.ndarray], dict[str, Any]] | None = None
    stored_size: tuple[int | None, int | None] | None = None

    @property
    def canvas_shape(self) -> tuple[int, int, int] | None:
        """Shape (H, W, C) of the images that `read` returns with `crop_seeds`, or None.

        If targets have image coordinates, the images are resized crops. Otherwise, they
        are canvases with a random crop in the upper left corner. None means that random
        crops are disabled.
        """
        if not self.input.are_images:
            return self.image_shape if self.input.crops_at_random else None
        if self.fit.window is None:
            return None
        size, channels = self._window_size, self.image_shape[-1]
        if self.transforms_targets:
            return size, size, channels
        return canvas.canvas_shape(size, channels)

    @property
    def input(self) -> InputKind:
        """Type of the inputs, which defines their conversion to images."""
        return input_of(self.facts)

    @property
    def dtype(self) -> type[np.generic]:
        """Dtype of the stored examples that `read` returns."""
        return self.input.dtype

    @property
    def model_input_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of the images after conversion of the inputs."""
        return self.input.image_shape(self.image_shape)

    def pictures(self, read: np.ndarray) -> np.ndarray:
        """Convert the inputs of a batch to images, uint8 (n, H, W, C).

        Args:
          read: Array `image` of a batch from the source.
        """
        if self.input.are_images:
            return read
        images = self.input.to_images(jnp.asarray(read))
        return np.rint(np.asarray(images)).astype(np.uint8)

    @property
    def transforms_targets(self) -> bool:
        """Whether `read` transforms targets, because they have image coordinates."""
        return transform_of(self.store) is not None

    @property
    def _window_size(self) -> int:
        return self.fit.window_size or self.image_shape[0]

    @property
    def _same_size(self) -> bool:
        """Whether all stored images already have the configured size."""
        stored = self.stored_size or self.store.image_shape[:2]
        return stored == self.image_shape[:2]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Metadata of the data set (`Store.facts`)."""
        return self.store.facts

    @property
    def has_files(self) -> bool:
        """Whether the store holds encoded files, which `read` decodes."""
        return isinstance(self.store.read(self.indices[:1])[0][0], StoredFile)

    @property
    def in_memory(self) -> bool:
        """Whether images are in memory in their final form, so `read` only copies."""
        same = self.store.image_shape == self.image_shape
        unchanged = same and self.change is None
        return unchanged and getattr(self.store, "in_memory", False)

    def __len__(self) -> int:
        return len(self.indices)

    def strata(self) -> np.ndarray:
        """Return the class of each example, (N,), or its labels; see `Store.strata`."""
        return self.store.strata(self.indices)

    def targets(self, indices: np.ndarray) -> Any:
        """Return the targets of the examples `indices`, a pytree of arrays (n, ...)."""
        if self.transforms_targets:
            return self.read(indices, unreadable=[])["target"]
        targets = targets_of(self.store, self.indices[indices])
        return self.store.read(self.indices[indices])[1] if targets is None else targets

    def all_targets(self) -> Any | None:
        """Return all targets, or None if that would require reading images."""
        return None if self.transforms_targets else targets_of(self.store, self.indices)

    def targets_to_check(self) -> Any:
        """Return all targets.

        If that would require reading images, return only the first and last target.
        """
        every = self.all_targets()
        return self.targets(np.array([0, len(self) - 1])) if every is None else every

    def read(
        self,
        indices: np.ndarray,
        crop_seeds: np.ndarray | None = None,
        unreadable: list[Unreadable] | None = None,
    ) -> dict[str, Any]:
        """Return `image`, uint8 (n, H, W, C), and `target`, a pytree (n, ...).

        Inputs other than images have the dtype and stored shape of their `InputKind`.

        Args:
          indices: Indices of the examples in the split, (n,).
          crop_seeds: Seeds of the random crop of each image, non-negative integers
            (n, k). Each crop is returned on a canvas with its `box` (see `canvas.py`),
            or resized if targets have image coordinates. None disables random crops.
          unreadable: List that is extended by the unreadable images, which become
            black.

        Raises:
          UserError: An image is unreadable, and `unreadable` is None.
        """
        stored, targets = self.store.read(self.indices[indices])
        bad: list[Unreadable] = []
        if self.transforms_targets:
            batch = read_with_targets(self, stored, targets, indices, crop_seeds, bad)
        elif not self.input.are_images:
            parts = self._fit(stored, indices, bad, crop_seeds)
            batch = {"image": parts, "target": targets}
        elif crop_seeds is not None:
            batch = self._cut(stored, indices, crop_seeds, bad)
            batch["target"] = targets
        else:
            batch = {
                "image": self._fit(stored, indices, bad),
                "target": targets,
            }
        if bad and unreadable is None:
            raise UserError(
                f"{bad[0]}; repair the file, or remove the file from the data set"
            )
        if unreadable is not None:
            unreadable += bad
        return batch if self.change is None else self.change(batch, indices)

    def subset(self, indices: np.ndarray) -> "Source":
        return dataclasses.replace(self, indices=self.indices[indices])

    def in_arrays(self, arrays: Mapping[str, Any], first: int) -> "Source":
        """Return a source that reads the same examples from cached arrays.

        Args:
          arrays: Arrays `image` and `target` of all splits, (examples, ...).
          first: Index of the first example of this split in the arrays.
        """
        store = ArrayStore(arrays["image"], arrays["target"], self.facts)
        indices = first + np.arange(len(self))
        return Source(store, indices, self.image_shape, max_pixels=0)

    def open(self, stored: StoredFile) -> files.ImageFile:
        """Read the header of a stored image file; no pixel is decoded.

        Raises:
          UnreadableError: The file is unusable (see `files.open_file`), or its image
            size differs from the common image size of the store.
        """
        file = files.open_file(stored.data, self.max_pixels, self.fit.white_level)
        height, width, _ = self.image_shape
        if self._same_size and (file.height, file.width) != (height, width):
            raise UnreadableError(
                f"the image has {file.width}x{file.height} pixels, expected "
                f"{width}x{height}"
            )
        return file

    def _cut(
        self,
        stored: Images,
        indices: np.ndarray,
        seeds: np.ndarray,
        unreadable: list[Unreadable],
    ) -> dict[str, np.ndarray]:
        """Copy random crops to canvases; the crops of unreadable images are black.

        Returns:
          Canvases `image` (n, K, K, C), and the crops' boxes on them, `box` (n, 4).
        """
        num, size, shape = len(indices), self._window_size, self.canvas_shape
        assert shape is not None, "crop_seeds are for sources that cut windows"
        pixels = memory.empty((num, *shape))
        boxes = np.empty((num, 4), np.float32)
        # All headers are read first: this Python code takes three times as long after
        # decoding an image, which fills the CPU cache.
        opened = list(map(self._open, stored, seeds.tolist()))
        for i, (image, one) in enumerate(zip(stored, opened, strict=True)):
            try:
                if isinstance(one, UnreadableError):
                    raise one
                boxes[i] = canvas.cut(*one, size, self.fit, pixels[i])
            except UnreadableError as error:
                unreadable.append(Unreadable.from_error(image, int(indices[i]), error))
                boxes[i] = canvas.black(size, pixels[i])
        return {"image": pixels, BOX: boxes}

    def _open(
        self, stored: np.ndarray | StoredFile, seed: Sequence[int]
    ) -> tuple[canvas.Image, Box] | UnreadableError:
        """Return (image, random crop window), or the error of opening the image."""
        try:
            image = self.open(stored) if isinstance(stored, StoredFile) else stored
        except UnreadableError as error:
            return error
        return image, canvas.draw(image, seed, self.fit, self._window_size)

    def _fit(
        self,
        stored: Images,
        indices: np.ndarray,
        unreadable: list[Unreadable],
        seeds: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return stored images in the configured size; unreadable images are black.

        Inputs other than images are cropped, at random if `seeds` are given.
        """
        if not (self._same_size and isinstance(stored, np.ndarray)):
            fitted = []
            for i, (index, image) in enumerate(
                zip(indices.tolist(), stored, strict=True)
            ):
                seed = None if seeds is None else seeds[i].tolist()
                try:
                    fitted.append(self._fit_one(image, seed))
                except UnreadableError as error:
                    unreadable.append(Unreadable.from_error(image, index, error))
                    fitted.append(np.zeros(self.image_shape, self.dtype))
            stored = np.asarray(fitted)
        return images.to_channels(stored, self.image_shape[-1])

    def _fit_one(
        self, image: np.ndarray | StoredFile, seed: Sequence[int] | None = None
    ) -> np.ndarray:
        size, width, channels = self.image_shape
        if not self.input.are_images and isinstance(image, StoredFile):
            return self.input.decode(image.data, seed)
        if not isinstance(image, StoredFile):
            same = image.shape[:2] == (size, width)
            return image if same else images.centre_fit(image, size, self.fit)
        file = self.open(image)
        if self._same_size:
            return file.decode(channels)
        return images.fit_file(file, size, channels, self.fit)
