"""Train a small convolutional classifier on the handwritten digits that scikit-learn ships.

    python examples/digits/train.py

writes `digits.pt` (the trained state_dict) and `samples.npz` (held-out images)
beside this file. Only training needs scikit-learn; building `DigitsNet` does not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SEED = 0
HELD_OUT = 0.25
SAMPLES = 64


class DigitsNet(nn.Module):
    """Ten logits for grey images `x`, float32 [N, 1, 8, 8] in 0..1."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.flatten(self.features(x), 1)
        return self.classifier(self.dropout(features))


def load_split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images to train on, their labels, held-out images, their labels; stratified and seeded."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    parts = train_test_split(
        images,
        digits.target.astype(np.int64),
        test_size=HELD_OUT,
        stratify=digits.target,
        random_state=SEED,
    )
    train_images, test_images, train_labels, test_labels = map(torch.from_numpy, parts)
    return train_images, train_labels, test_images, test_labels


def train(images: Tensor, labels: Tensor, epochs: int, batch: int = 64) -> DigitsNet:
    """A network after a fixed number of epochs: nothing is chosen by looking at held-out images."""
    torch.manual_seed(SEED)
    model = DigitsNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * -(-len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    loss_of = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(batch):
            loss = loss_of(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        print(f"epoch {epoch + 1:2d}/{epochs}  loss {total / len(images):.4f}")
    return model


@torch.no_grad()
def count_correct(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """How many images the model, in eval mode, classifies as labelled."""
    return int((model.eval()(images).argmax(1) == labels).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train DigitsNet and save its state_dict.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder")
    options = parser.parse_args()

    torch.set_num_threads(1)  # the result must not depend on how many cores there are
    train_images, train_labels, test_images, test_labels = load_split()
    model = train(train_images, train_labels, options.epochs)
    correct = count_correct(model, test_images, test_labels)
    print(f"held-out accuracy {correct / len(test_labels):.2%} ({correct}/{len(test_labels)})")

    torch.save(model.state_dict(), options.output / "digits.pt")
    np.savez_compressed(options.output / "samples.npz", x=test_images[:SAMPLES].numpy())


if __name__ == "__main__":
    main()
