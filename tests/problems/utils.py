"""What the tasks of this folder share."""

import torch


def matches(output, expected):
    if torch.equal(output, expected):
        return True, ""
    return False, f"{int((output != expected).sum())} bins differ"
