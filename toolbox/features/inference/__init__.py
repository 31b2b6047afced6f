"""The cases of a server of a language model: their files, and the answers of the server. No connection is made here."""
