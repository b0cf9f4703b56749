"""PyTorch: plain, and with Opacus by hooks and ghost clipping, Poisson sampling as by default."""

import argparse
import warnings
from collections.abc import Callable

import opacus
import torch
from serve import serve
from torch_models import MODELS


def prepare(given: argparse.Namespace) -> Callable[[], object]:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model, x, y = MODELS[given.model](given.batch * given.steps, private=given.mode != "plain")
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, given.batch, shuffle=True)
    loss = torch.nn.CrossEntropyLoss()
    model.train()
    if given.mode != "plain":
        made = opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            grad_sample_mode=given.mode,
            **({"criterion": loss} if given.mode == "ghost" else {}),
        )
        if given.mode == "ghost":
            model, optimizer, loss, loader = made
        else:
            model, optimizer, loader = made

    def epoch() -> None:
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()

    return epoch


if __name__ == "__main__":
    serve(prepare)
