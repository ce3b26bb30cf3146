"""What an attacker who reads the models learns about users: secrets they wrote, and whether they took part."""
