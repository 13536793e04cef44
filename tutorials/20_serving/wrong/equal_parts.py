"""Gives each request the same number of rows.

rejected by: test_answers
message: answers to requests of [2, 1, 4] rows
"""


def answers(function, requests):
    return np.array_split(function(np.concatenate(requests)), len(requests))
