"""All examples, by family."""

from tests.compatibility import generative, pairs, sequences, tabular, text, vision

FAMILIES = {
    "images": vision.EXAMPLES,
    "tables": tabular.EXAMPLES,
    "series and sound": sequences.EXAMPLES,
    "text": text.EXAMPLES,
    "generative": generative.EXAMPLES,
    "pairs and graphs": pairs.EXAMPLES,
}
EXAMPLES = [example for examples in FAMILIES.values() for example in examples]
