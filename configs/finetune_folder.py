"""Your images in folders, one per class: fine-tuning of weights from ImageNet.

    python main.py --config configs/finetune_folder.py --data.source folder:DIR \
        --model.pretrained FILE

FILE is a weights file of timm's or torchvision's resnet50, a folder in timm's format,
hf:OWNER/REPO on the Hugging Face Hub, or a run of jaxtrain. For weights of another
model, set --model.name. Without --model.pretrained, weights from the Hub are used, for
which `pip install -e '.[hub]'` is required. `python main.py models` lists the models
with weights.

Hardware: one GPU, or a CPU for a few hundred images. Time and accuracy: unmeasured with
ImageNet weights; benchmarks/RESULTS.md has measurements with other weights on
Fashion-MNIST.
Recipe: fastai's `fine_tune` (Howard and Gugger 2020, arXiv:2002.04688): only the new
last layer for one epoch, then all layers, with a hundredth of the learning rate for the
first layers; AdamW with learning rate 0.002 for batch 64.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    ClassificationConfig,
    Config,
    DataConfig,
    ResNetConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(
            source="folder:images",
            # Used if the folder has no subfolders for validation and test.
            validation_fraction=0.1,
            image_size=224,
            # Grey images are converted to colour, as the weights expect 3 channels.
            channels=3,
            batch_size=64,
            augment=AugmentConfig(
                random_resized_crop=True,
                # Crops of at least a third of the image suit small data sets.
                crop_scale=(0.35, 1.0),
                # Set False if mirrored images have another class, such as letters.
                horizontal_flip=True,
            ),
        ),
        model=ResNetConfig(name="resnet50", pretrained="hf:timm/resnet50.a1_in1k"),
        optimizer=AdamWConfig(learning_rate=2e-3, weight_decay=0.01),
        train=TrainConfig(
            # One epoch of the last layer, then nine of all layers.
            epochs=10,
            fine_tune=True,
        ),
        task=ClassificationConfig(label_smoothing=0.1),
    )
