"""Deletion requests of the fleet (`logagent topics`): read from the store, carried out under every guard of this host.

A request is an approval and shortens waits; it is never a proof. `memory` keeps what was verified and done, and says
what may be carried out at all; `directories` acts on one session; `node_requests` is what daemon and `prestart` use.
"""
