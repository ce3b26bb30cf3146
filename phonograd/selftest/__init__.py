"""`phonograd selftest`: does the engine compute on this machine what it computes elsewhere?"""
