"""The models of `benchmarks.models` in PyTorch: same shapes, activations and numbers of weights."""

from collections.abc import Callable

import torch
from torch import nn

CLASSES = 10


class Encoder(nn.Module):
    """Token and position tables, blocks that are normalised after each sum, mean over positions."""

    def __init__(self, layers: int, width: int, heads: int, tokens: int, vocab: int, private: bool):
        super().__init__()
        if private:
            from opacus.layers import DPMultiheadAttention as Attention
        else:
            Attention = nn.MultiheadAttention
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(tokens, width)
        self.attend = nn.ModuleList(
            [Attention(width, heads, batch_first=True) for _ in range(layers)]
        )
        self.first = nn.ModuleList([nn.LayerNorm(width, eps=1e-3) for _ in range(layers)])
        self.second = nn.ModuleList([nn.LayerNorm(width, eps=1e-3) for _ in range(layers)])
        self.expand = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.shrink = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.zeros_like(ids) + torch.arange(ids.shape[1], device=ids.device)
        hidden = self.tokens(ids) + self.places(places)
        blocks = zip(self.attend, self.first, self.second, self.expand, self.shrink, strict=True)
        for attend, first, second, expand, shrink in blocks:
            hidden = first(hidden + attend(hidden, hidden, hidden, need_weights=False)[0])
            hidden = second(hidden + shrink(nn.functional.gelu(expand(hidden))))
        return self.head(hidden.mean(1))


class Rows(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self, private: bool):
        super().__init__()
        if private:
            from opacus.layers import DPLSTM as LSTM
        else:
            LSTM = nn.LSTM
        self.lstm, self.head = LSTM(28, 128, batch_first=True), nn.Linear(128, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Residual(nn.Module):
    """Two convolutions beside a shortcut; normalised after (ResNet) or before them (WRN)."""

    def __init__(self, before: int, width: int, stride: int, groups: int, first: bool, wide: bool):
        super().__init__()
        self.wide = wide
        self.a = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_a = nn.GroupNorm(groups, before if wide else width)
        self.norm_b = nn.GroupNorm(groups, width)
        has_shortcut = first if wide else stride > 1
        self.short = nn.Conv2d(before, width, 1, stride, bias=False) if has_shortcut else None
        has_norm = has_shortcut and not wide
        self.norm_short = nn.GroupNorm(groups, width) if has_norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.wide:
            active = self.norm_a(x).relu()
            shortcut = x if self.short is None else self.short(active)
            return shortcut + self.b(self.norm_b(self.a(active)).relu())
        shortcut = x if self.short is None else self.norm_short(self.short(x))
        return (shortcut + self.norm_b(self.b(self.norm_a(self.a(x)).relu()))).relu()


class Images(nn.Module):
    """A first convolution, residual blocks, the mean over pixels."""

    def __init__(self, widths: tuple[int, ...], blocks: int, groups: int, wide: bool):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = nn.Identity() if wide else nn.GroupNorm(groups, 16)
        inside, before = [], 16
        for width in widths:
            for block in range(blocks):
                stride = 2 if width > widths[0] and block == 0 else 1
                inside.append(Residual(before, width, stride, groups, block == 0, wide))
                before = width
        self.blocks = nn.Sequential(*inside)
        self.last = nn.GroupNorm(groups, before) if wide else nn.Identity()
        self.head = nn.Linear(before, CLASSES)
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.stem(x))
        x = self.blocks(x if self.wide else x.relu())
        x = self.last(x).relu() if self.wide else x
        return self.head(x.mean((2, 3)))


def _labelled(model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return model, x, torch.randint(0, CLASSES, (len(x),))


def _encoder(layers: int, width: int, heads: int, tokens: int = 64, vocab: int = 1000) -> Callable:
    def make(rows: int, private: bool) -> tuple:
        ids = torch.randint(0, vocab, (rows, tokens))
        return _labelled(Encoder(layers, width, heads, tokens, vocab, private), ids)

    return make


def _images(widths: tuple[int, ...], blocks: int, groups: int, wide: bool) -> Callable:
    def make(rows: int, private: bool) -> tuple:
        return _labelled(Images(widths, blocks, groups, wide), torch.rand(rows, 3, 32, 32))

    return make


def _mlp(rows: int, private: bool) -> tuple:
    layers = [nn.Linear(784, 128), nn.Sigmoid(), nn.Linear(128, 256), nn.Sigmoid()]
    return _labelled(nn.Sequential(*layers, nn.Linear(256, CLASSES)), torch.rand(rows, 784))


def _cnn(rows: int, private: bool) -> tuple:
    first = [nn.Conv2d(1, 20, 5), nn.Sigmoid(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(20, 50, 5), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten()]
    dense = [nn.Linear(800, 128), nn.Sigmoid(), nn.Linear(128, CLASSES)]
    return _labelled(nn.Sequential(*first, *second, *dense), torch.rand(rows, 1, 28, 28))


def _lstm(rows: int, private: bool) -> tuple:
    return _labelled(Rows(private), torch.rand(rows, 28, 28))


MODELS: dict[str, Callable] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "lstm": _lstm,
    "transformer": _encoder(4, 256, 4),
    "bert_small": _encoder(4, 512, 8),
    "resnet20": _images((16, 32, 64), 3, 8, wide=False),
    "wrn28_4": _images((64, 128, 256), 4, 16, wide=True),
    "bert_base": _encoder(12, 768, 12, tokens=128, vocab=30522),
    "wrn28_10": _images((160, 320, 640), 4, 16, wide=True),
}
