"""Federated averaging on one screen, without a server: text, training, codec, fold, perplexity.

It makes up its texts, so that it runs anywhere, in seconds. It needs: pip install '.[export]'
"""

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Final

import phonograd

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "and", "then", "it", "slept", "well", "soon"]
ROUNDS = 3
CODEC: Final = "rot-q4"


def messages(seed: int, count: int) -> list[str]:
    """Made-up messages; each seed prefers other words."""
    random = Random(seed)
    words = random.sample(WORDS, len(WORDS))
    return [" ".join(random.choices(words, range(len(words), 0, -1), k=random.randint(4, 9))) for _ in range(count)]


def phone(artifacts: phonograd.Artifacts, model: Path, number: int, name: str, text: list[str]) -> Path:
    """A phone's part: an epoch on its user's text, half of it general messages, and the update, encoded."""
    update = Path(f"{name}.update")
    settings = phonograd.TrainSettings(
        weights=model,
        round_number=number,
        phone=name,  # model, round and name give the seed of all that is random
        codec=CODEC,
    )
    phonograd.train(artifacts, text, settings, rehearsal="general.txt", update=update)
    return update


def run_round(artifacts: phonograd.Artifacts, model: Path, number: int, users: dict[str, list[str]]) -> Path:
    """The next model: the average of all phones' weights, each weighted by its tokens."""
    updates = [phone(artifacts, model, number, name, text) for name, text in users.items()]
    after = Path(f"round{number}.safetensors")
    phonograd.fold_updates(updates, model, after)
    print(f"round {number}: {sum(update.stat().st_size for update in updates):,} bytes up in {CODEC}")
    return after


def main() -> None:
    """A pre-trained model, then rounds of three users."""
    Path("general.txt").write_text("\n".join(messages(0, 300)))
    users = {f"user{number}": messages(number, 60) for number in (1, 2, 3)}

    vocabulary = phonograd.build_vocabulary(["general.txt"], size=len(WORDS) + 2)
    shape = phonograd.LanguageModelConfig("lstm", vocabulary=len(vocabulary), embedding=24, hidden=32, layers=2)
    config = phonograd.PretrainConfig(epochs=4, minibatch=5, bptt=10)
    phonograd.pretrain(shape, vocabulary, ["general.txt"], "base.safetensors", config=config)
    training = phonograd.TrainingConfig(minibatch=5, bptt=10, learning_rate=0.5)
    artifacts = phonograd.export_artifacts("base.safetensors", vocabulary, "artifacts", training=training)

    model = artifacts.path("weights.safetensors")
    for number in range(ROUNDS + 1):
        if number:
            model = run_round(artifacts, model, number, users)
        quality = phonograd.evaluate(artifacts, [message for text in users.values() for message in text], weights=model)
        print(f"users' perplexity {quality.perplexity:.2f}, with unknown words {quality.perplexity_with_unknown:.2f}")


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp(prefix="one-round-"))  # every run has a folder of its own
    main()
