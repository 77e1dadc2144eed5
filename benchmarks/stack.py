"""A 2.1 GB stack of linear layers, for measuring what big weights cost."""

from torch import nn

WIDTH, DEPTH = 8192, 8


class Stack(nn.Sequential):
    """DEPTH layers of WIDTH x WIDTH float32 weights: 268 MB each."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for _ in range(DEPTH):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        super().__init__(*layers)
