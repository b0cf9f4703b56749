"""The configurations that hostile records are fed to."""

import tf_lowrank_dp as tfdp
from tests.hostile.harness import Configuration

DPSGD, SPARSE, POWER = tfdp.DPSGDOptimizer, tfdp.SparseDPSGDOptimizer, tfdp.DPPowerSGDOptimizer
RGP, LSG, GEP = tfdp.RGPOptimizer, tfdp.LSGOptimizer, tfdp.GEPOptimizer
LAYERS = {"clipping": "per_layer"}
REWEIGHT = {"gradient_method": "reweight"}
VECTORIZED, LOOP = {"gradient_method": "vectorized"}, {"gradient_method": "loop"}
RANK = {"rank": 2, "include": ["kernel"]}
WEIGHTS = {**RANK, "carriers_from": "weights"}
RANDOM = {**RANK, "carriers_from": "random"}
HISTORY = {**RANK, "carriers_from": "history", "warmup_steps": 0}
TABLE = {"include": ["kernel", "embeddings"]}
BASES = {"num_bases": 9}
NEURON = {"unit": "neuron", "sparsity": 0.5}
CENTRED = {"centering": True}
AUTOMATIC = {"l2_norm_clip": tfdp.AutomaticClip()}
QUANTILE = {"l2_norm_clip": tfdp.QuantileClip(0.5, initial=0.5)}
BFLOAT = {"policy": "mixed_bfloat16"}

CONFIGURATIONS = {
    "dense dpsgd": Configuration("dense", DPSGD),
    "dense dpsgd per layer reweight": Configuration("dense", DPSGD, LAYERS | REWEIGHT),
    "dense sparse weight": Configuration("dense", SPARSE, {"l2_norm_clip": 1e-3}),
    "dense sparse neuron per layer": Configuration(
        "dense", SPARSE, NEURON | LAYERS, microbatch_size=3
    ),
    "dense rgp weights": Configuration("dense", RGP, WEIGHTS | {"l2_norm_clip": 100.0}),
    "dense gep": Configuration("dense", GEP, BASES),
    "dense gep in one group": Configuration(
        "dense", GEP, BASES | {"num_groups": 1}, microbatch_size=3
    ),
    "dense gep every other step": Configuration("dense", GEP, BASES | {"refresh_every": 2}),
    "dense gep xla": Configuration("dense", GEP, BASES, jit_compile=True),
    "dense gep vectorized": Configuration("dense", GEP, BASES | VECTORIZED),
    "dense b-gep": Configuration("dense", GEP, BASES | {"residual": False}),
    "dense gep reweight": Configuration("dense", GEP, BASES | REWEIGHT),
    "sequence dpsgd": Configuration("sequence", DPSGD),
    "sequence dpsgd xla": Configuration("sequence", DPSGD, jit_compile=True),
    "sequence dpsgd per layer bfloat": Configuration("sequence", DPSGD, LAYERS, **BFLOAT),
    "sequence dpsgd per layer reweight xla": Configuration(
        "sequence", DPSGD, LAYERS | REWEIGHT, jit_compile=True
    ),
    "sequence dpsgd reweight": Configuration("sequence", DPSGD, REWEIGHT, microbatch_size=5),
    "sequence dpsgd per layer reweight bfloat": Configuration(
        "sequence", DPSGD, LAYERS | REWEIGHT, **BFLOAT
    ),
    "sequence dpsgd vectorized": Configuration("sequence", DPSGD, VECTORIZED),
    "sequence dpsgd loop per layer": Configuration(
        "sequence", DPSGD, LAYERS | LOOP, microbatch_size=3
    ),
    "sequence power sgd per layer": Configuration("sequence", POWER, RANK | LAYERS),
    "sequence rgp weights": Configuration("sequence", RGP, WEIGHTS),
    "sequence rgp history": Configuration("sequence", RGP, HISTORY, microbatch_size=3),
    "sequence rgp random left per layer": Configuration(
        "sequence", RGP, RANDOM | LAYERS | {"carriers": "left"}
    ),
    "sequence rgp right bfloat": Configuration(
        "sequence", RGP, WEIGHTS | {"carriers": "right"}, **BFLOAT
    ),
    "sequence lsg": Configuration("sequence", LSG, WEIGHTS),
    "sequence lsg xla": Configuration("sequence", LSG, WEIGHTS, jit_compile=True),
    "sequence lsg random masks": Configuration("sequence", LSG, WEIGHTS | {"masks_from": "random"}),
    "sequence lsg masks of carriers": Configuration(
        "sequence", LSG, WEIGHTS | {"masks_from": "carriers"}
    ),
    "sequence lsg per layer reweight": Configuration("sequence", LSG, WEIGHTS | LAYERS | REWEIGHT),
    "sequence lsg scaled bfloat": Configuration(
        "sequence", LSG, RANDOM | {"gradient_scale": {"first": 0.1, "head": 7.0}},
        microbatch_size=2, **BFLOAT,
    ),
    "sequence gep bfloat": Configuration("sequence", GEP, BASES, **BFLOAT),
    "conv dpsgd": Configuration("conv", DPSGD),
    "conv dpsgd per layer reweight": Configuration("conv", DPSGD, LAYERS | REWEIGHT),
    "conv dpsgd per layer vectorized": Configuration("conv", DPSGD, LAYERS | VECTORIZED),
    "conv sparse neuron bfloat": Configuration("conv", SPARSE, NEURON, **BFLOAT),
    "conv rgp weights": Configuration("conv", RGP, WEIGHTS),
    "conv lsg": Configuration("conv", LSG, WEIGHTS),
    "conv gep": Configuration("conv", GEP, BASES, microbatch_size=3),
    "recurrent dpsgd": Configuration("recurrent", DPSGD, {"l2_norm_clip": 1e-3}),
    "recurrent rgp history per layer": Configuration("recurrent", RGP, HISTORY | LAYERS),
    "recurrent lsg": Configuration("recurrent", LSG, WEIGHTS, microbatch_size=3),
    "attention dpsgd per layer": Configuration("attention", DPSGD, LAYERS),
    "attention rgp random reweight": Configuration("attention", RGP, RANDOM | REWEIGHT),
    "attention lsg with the table": Configuration("attention", LSG, WEIGHTS | TABLE),
    "attention sparse weight bfloat": Configuration("attention", SPARSE, **BFLOAT),
    "dense dpsgd centred": Configuration("dense", DPSGD, CENTRED),
    "sequence dpsgd centred per layer reweight bfloat": Configuration(
        "sequence", DPSGD, CENTRED | LAYERS | REWEIGHT, **BFLOAT
    ),
    "sequence lsg centred scaled": Configuration(
        "sequence", LSG, CENTRED | WEIGHTS | {"gradient_scale": {"first": 0.1, "head": 7.0}}
    ),
    "conv dpsgd centred xla": Configuration("conv", DPSGD, CENTRED, jit_compile=True),
    "conv sparse neuron centred": Configuration(
        "conv", SPARSE, CENTRED | NEURON, microbatch_size=3
    ),
    "recurrent rgp centred": Configuration("recurrent", RGP, CENTRED | WEIGHTS),
    "attention dpsgd centred": Configuration("attention", DPSGD, CENTRED),
    "dense dpsgd automatic": Configuration("dense", DPSGD, AUTOMATIC),
    "sequence rgp automatic per layer centred bfloat": Configuration(
        "sequence", RGP, AUTOMATIC | WEIGHTS | LAYERS | CENTRED, **BFLOAT
    ),
    "conv lsg automatic xla": Configuration("conv", LSG, AUTOMATIC | WEIGHTS, jit_compile=True),
    "dense dpsgd quantile": Configuration("dense", DPSGD, QUANTILE),
    "sequence lsg quantile per layer reweight": Configuration(
        "sequence", LSG, QUANTILE | WEIGHTS | LAYERS | REWEIGHT, microbatch_size=3
    ),
    "conv dpsgd quantile centred per layer": Configuration(
        "conv", DPSGD, QUANTILE | CENTRED | LAYERS | {"gradient_scale": {"head": 0.1}}
    ),
}  # fmt: skip
