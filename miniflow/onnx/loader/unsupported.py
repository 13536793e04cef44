"""Operators of the default domain that are not supported, and why."""

REASONS = {
    "counting of n-grams is not supported": "TfIdfVectorizer",
    "decoding of images is not supported": "ImageDecoder",
    "deformable convolutions are not supported": "DeformConv",
    "Fourier transforms are not supported": "DFT STFT",
    "no exporter is known to write it": "MaxUnpool MelWeightMatrix TensorScatter",
    "optional values are not supported": "Optional OptionalGetElement OptionalHasElement",
    "sequences are not supported": "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
    "SequenceInsert SequenceLength SequenceMap SplitToSequence",
    "strings are not supported": "RegexFullMatch StringConcat StringNormalizer StringSplit",
    "use RoiAlign": "MaxRoiPool",
}
UNSUPPORTED = {name: reason for reason, names in REASONS.items() for name in names.split()}
