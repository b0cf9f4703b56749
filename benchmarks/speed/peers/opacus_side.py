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
    torch.set_float32_matmul_precision("high" if given.precision == "tf32" else "highest")
    model, x, y = MODELS[given.model](given.batch * given.steps, private=given.mode != "plain")
    model, x, y = (thing.to(given.device) for thing in (model, x, y))
    fewer_bits = given.precision == "bfloat16"
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
            with torch.autocast(given.device, torch.bfloat16, enabled=fewer_bits):
                error = loss(model(inputs), labels)
            error.backward()
            optimizer.step()
        if given.device == "cuda":
            torch.cuda.synchronize()

    return epoch


def device_bytes() -> int | None:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


if __name__ == "__main__":
    serve(prepare, device_bytes)
