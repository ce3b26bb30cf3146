"""From your own PyTorch model to the bytes of a federated round. Open it as a notebook, or run it: it takes seconds.

It makes up its texts, so that it runs anywhere; put your own files in their place.
It needs: pip install '.[export]'
"""

# %% Texts: general ones to pre-train on, and those of three users, one message a line.
import os
import tempfile
from pathlib import Path
from random import Random

import torch
from torch import nn

import phonograd

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "and", "then", "it", "slept", "well", "soon"]


def messages(seed: int, count: int) -> list[str]:
    """Made-up messages; each seed prefers other words."""
    random = Random(seed)
    words = random.sample(WORDS, len(WORDS))
    return [" ".join(random.choices(words, range(len(words), 0, -1), k=random.randint(4, 9))) for _ in range(count)]


os.chdir(tempfile.mkdtemp(prefix="own-model-"))  # every run has a folder of its own
print(f"files are in {Path.cwd()}")
Path("general.txt").write_text("\n".join(messages(0, 150)))
users = {f"user{number}": messages(number, 40) for number in range(1, 4)}


# %% Your own model, with the names of PyTorch's word_language_model example.
class Keyboard(nn.Module):
    """A word-level LSTM: the next word's scores [T, B, V] of tokens [T, B]."""

    def __init__(self, words: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Embedding(words, embedding)
        self.rnn = nn.LSTM(embedding, hidden, num_layers=2)
        self.decoder = nn.Linear(hidden, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores, from a state of zeros."""
        scores: torch.Tensor = self.decoder(self.rnn(self.encoder(tokens))[0])
        return scores


vocabulary = phonograd.build_vocabulary(["general.txt"], size=len(WORDS) + 2)
model = Keyboard(len(vocabulary), embedding=24, hidden=32)

# %% Pre-train it, in plain PyTorch.
stream = torch.from_numpy(vocabulary.encode(Path("general.txt").read_bytes().splitlines()))
columns = stream[: len(stream) // 10 * 10].reshape(10, -1).T
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(20):
    loss = nn.functional.cross_entropy(model(columns[:-1]).flatten(0, 1), columns[1:].flatten())
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()

# %% Export what phones train from: the shape follows from the tensors.
training = phonograd.TrainingConfig(minibatch=5, bptt=10, learning_rate=0.5)
artifacts = phonograd.export_artifacts(model, vocabulary, "artifacts", training=training)
general = phonograd.evaluate(artifacts, "general.txt")
print(
    f"{artifacts.manifest.model.parameters:,} parameters, perplexity on general text {general.perplexity:.1f}, ", end=""
)
print(f"with unknown words {general.perplexity_with_unknown:.1f}")

# %% One user's update in each codec: what would travel, and what it does to the model.
user1 = phonograd.TrainSettings(phone="user1")
trained = phonograd.train(artifacts, users["user1"], user1, rehearsal="general.txt", out="user1.safetensors")
print(f"loss {trained.report.losses[0]:.2f} -> {trained.report.losses[-1]:.2f} in {trained.report.steps} steps")
for codec in ("full-f32", "delta-int8", "rot-q4", "rot-q1"):
    encoded = phonograd.encode_update(
        "user1.safetensors", artifacts, f"{codec}.update", tokens=trained.report.tokens, codec=codec, phone="user1"
    )
    phonograd.fold_updates([f"{codec}.update"], artifacts, f"{codec}.safetensors")
    decoded = phonograd.evaluate(artifacts, users["user1"], weights=f"{codec}.safetensors")
    print(f"{codec:12} {encoded.file.nbytes:9,} bytes   perplexity {decoded.perplexity:6.2f}, ", end="")
    print(f"with unknown words {decoded.perplexity_with_unknown:6.2f}")

# %% A round of all three, over HTTP.
rules = phonograd.RoundRules(clients_per_round=len(users))
with phonograd.start_server(artifacts, "server", phonograd.ServerSettings(port=0, rules=rules)) as server:
    for phone, text in users.items():
        joined = phonograd.join_round(server.url, artifacts, phone, codec="delta-int8")
        settings = phonograd.TrainSettings(
            epochs=4, weights=joined.weights, round_number=joined.opened.round, phone=phone, codec="delta-int8"
        )
        phonograd.train(artifacts, text, settings, update=f"{phone}.update")
        joined.send(f"{phone}.update")
    phonograd.download(server.url, "next.safetensors")
    (first,) = (round_ for round_ in phonograd.report(server.admin)["rounds"] if round_["accepted"])

# %% What the round cost, and what it brought.
users_before = phonograd.evaluate(artifacts, [message for text in users.values() for message in text])
users_after = phonograd.evaluate(
    artifacts, [message for text in users.values() for message in text], weights="next.safetensors"
)
print(f"round {first['round']}: {first['accepted']} updates, {first['useful_bytes']:,} bytes of them")
print(f"users' perplexity {users_before.perplexity:.1f} -> {users_after.perplexity:.1f}")
print(f"with unknown words {users_before.perplexity_with_unknown:.1f} -> {users_after.perplexity_with_unknown:.1f}")
