"""Packaging of tf_lowrank_dp."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

CORE = [
    "tensorflow>=2.18",
    "keras>=3.10",
    "dp-accounting>=0.5",
    "numpy>=1.26",
]
EXAMPLES = [
    "tensorflow-datasets>=4.9.9",
    "keras-hub>=0.20",
    "scikit-learn>=1.5",
    "matplotlib>=3.8",
]
TEST = [
    "pytest>=8",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
    "scikit-learn>=1.5",
    "scipy>=1.11",
    "matplotlib>=3.8",
    "keras-hub>=0.20",
    "tensorboard>=2.18",
    "keras-tuner>=1.4.7",
]
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.26"]
BENCHMARKS = ["tensorflow-datasets>=4.9.9", "keras-hub>=0.20", "rich>=13", "matplotlib>=3.8"]

setup(
    name="tf_lowrank_dp",
    version="0.1.0",
    description="Differentially private training for Keras 3 on TensorFlow, as fast as ordinary",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["tf_lowrank_dp", "tf_lowrank_dp.*"]),
    package_data={"tf_lowrank_dp": ["py.typed"]},
    python_requires=">=3.11",
    install_requires=CORE,
    extras_require={
        "examples": EXAMPLES,
        "test": TEST,
        "benchmarks": BENCHMARKS,
        "docs": DOCS,
        "dev": [*TEST, *EXAMPLES, *BENCHMARKS, *DOCS, "ruff>=0.8", "mypy>=2.4"],
        # For comparing privacy statements only: what those of TensorFlow Privacy import. It cannot
        # be listed itself: 0.9.0, its last version, pins dp-accounting==0.4.3, which has no PLD
        # of Poisson sampling under REPLACE_ONE. Install it beside this extra, without its pins:
        # pip install --no-deps "tensorflow-privacy==0.9.0"
        "tensorflow-privacy": ["absl-py>=1.0", "scipy>=1.11"],
    },
    license="Apache-2.0",
)
