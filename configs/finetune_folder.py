"""Your own images in folders, one a class: the weights of ImageNet, fine-tuned.

    python main.py --config configs/finetune_folder.py --data.source folder:DIR \
        --model.pretrained FILE

FILE is a resnet50 of timm or torchvision, a folder in timm's form, hf:OWNER/REPO of the
Hugging Face hub, or a run of jaxtrain; of another model with --model.name. Without it
the weights are those of the recipe, from the hub: pip install -e '.[hub]'.
`python main.py models` lists the models that there are weights of.

Hardware: one GPU, or a CPU for some hundred images. Time and accuracy: those of your
images; with the weights of ImageNet unmeasured here, they are not at hand. What weights
of other images were worth on Fashion-MNIST is in benchmarks/RESULTS.md.
Recipe: fastai's `fine_tune` (Howard and Gugger 2020, arXiv:2002.04688): the new last
layer alone for one epoch, then all layers, the first ones at a hundredth of the rate;
Adam with decoupled decay, 0.002 for batches of 64.
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
            # Of the folders for training, where none is called validation or test.
            validation_fraction=0.1,
            image_size=224,
            # Grey images are made colour, which the weights know.
            channels=3,
            batch_size=64,
            augment=AugmentConfig(
                random_resized_crop=True,
                # Windows of a third of the image and more: yours may be few.
                crop_scale=(0.35, 1.0),
                # False, if a mirrored image is not of its class, as with letters.
                horizontal_flip=True,
            ),
        ),
        model=ResNetConfig(name="resnet50", pretrained="hf:timm/resnet50.a1_in1k"),
        optimizer=AdamWConfig(learning_rate=2e-3, weight_decay=0.01),
        train=TrainConfig(
            # One of the last layer, nine of all.
            epochs=10,
            fine_tune=True,
        ),
        task=ClassificationConfig(label_smoothing=0.1),
    )
