"""From a user's messages to minibatches of tokens, and what a model makes of a text."""
