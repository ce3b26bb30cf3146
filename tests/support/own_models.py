"""A PyTorch user's own model: the RNNModel of PyTorch's word_language_model example, less its training."""

from torch import Tensor, nn


class RNNModel(nn.Module):
    """encoder, rnn, decoder, as in the example; `bias`: of the decoder."""

    def __init__(self, cell: str, words: int, embedding: int, hidden: int, layers: int, tied: bool, bias: bool = True):
        super().__init__()
        self.encoder = nn.Embedding(words, embedding)
        self.rnn = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](embedding, hidden, layers)
        self.decoder = nn.Linear(hidden, words, bias=bias)
        if tied:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [T, B, V] of int64 tokens [T, B], from a state of zeros."""
        logits: Tensor = self.decoder(self.rnn(self.encoder(tokens))[0])
        return logits
