"""Operators of the default domain that are not supported, and why."""

SEQUENCES = "sequences are not supported"
OPTIONALS = "optional values are not supported"

UNSUPPORTED = {
    "ConcatFromSequence": SEQUENCES,
    "DeformConv": "deformable convolutions are not supported",
    "ImageDecoder": "decoding of images is not supported",
    "MaxRoiPool": "use RoiAlign",
    "MelWeightMatrix": "no exporter is known to write it",
    "Optional": OPTIONALS,
    "OptionalGetElement": OPTIONALS,
    "OptionalHasElement": OPTIONALS,
    "RegexFullMatch": "the patterns of RE2 are not supported",
    "SequenceAt": SEQUENCES,
    "SequenceConstruct": SEQUENCES,
    "SequenceEmpty": SEQUENCES,
    "SequenceErase": SEQUENCES,
    "SequenceInsert": SEQUENCES,
    "SequenceLength": SEQUENCES,
    "SequenceMap": SEQUENCES,
    "SplitToSequence": SEQUENCES,
    "TfIdfVectorizer": "counting of n-grams is not supported",
}
