"""Generated text with brackets, recurring names and local order, of which it is known what each token needs.

Words come in threes a, b, c, each from a set of its own: b is any, and c is the one that belongs to a, so that it
follows from the token before the last. A closing bracket must match the innermost open one. After `who` stands
the name that was said last.
"""

import random
from dataclasses import dataclass

WORDS, BRACKETS, NAMES, MOST_DEPTH = 6, 3, 4, 3
FIRST, SECOND, THIRD, OPEN = 0, WORDS, 2 * WORDS, 3 * WORDS
CLOSE, NAME = OPEN + BRACKETS, OPEN + 2 * BRACKETS
WHO = NAME + NAMES
VOCABULARY = WHO + 1


@dataclass
class Text:
    """tokens, and for each position of what kind the next token is and where the token lies that it follows
    from: `bracket` (the matching one), `name` (the last one said) or `word` (the one before the last)."""

    tokens: list[int]
    sources: dict[str, list[tuple[int, int]]]


def make_text(length: int, generator: random.Random) -> Text:
    """A text of `length` tokens. sources[kind] holds (position of the query, position of its source)."""
    tokens: list[int] = []
    stack: list[tuple[int, int]] = []
    last_name: tuple[int, int] | None = None
    sources: dict[str, list[tuple[int, int]]] = {"word": [], "bracket": [], "name": []}

    def say(token: int, kind: str | None = None, source: int = 0) -> None:
        if kind and tokens:
            sources[kind].append((len(tokens) - 1, source))
        tokens.append(token)

    while len(tokens) < length:
        draw = generator.random()
        if draw < 0.15 and len(stack) < MOST_DEPTH:
            bracket = generator.randrange(BRACKETS)
            stack.append((bracket, len(tokens)))
            say(OPEN + bracket)
        elif draw < 0.4 and stack:
            bracket, at = stack.pop()
            say(CLOSE + bracket, "bracket", at)
        elif draw < 0.55:
            last_name = (NAME + generator.randrange(NAMES), len(tokens))
            say(last_name[0])
        elif draw < 0.75 and last_name:
            name, at = last_name
            say(WHO)
            last_name = (name, len(tokens))
            say(name, "name", at)
        else:
            word = generator.randrange(WORDS)
            say(FIRST + word)
            say(SECOND + generator.randrange(WORDS))
            say(THIRD + word, "word", len(tokens) - 2)
    kept = {kind: [(query, source) for query, source in pairs if query < length - 1] for kind, pairs in sources.items()}
    return Text(tokens[:length], kept)


def make_batch(batch: int, length: int, seed: int) -> list[Text]:
    generator = random.Random(seed)
    return [make_text(length, generator) for _ in range(batch)]
