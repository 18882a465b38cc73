"""Orders of the fleet (`logagent topics`), read from the store and carried out under every guard of this host.

An order is an approval and shortens waits; it is never a proof. `inbox` reads and judges order files,
`order_execution` acts on a session, `memory` keeps the answers, `box` is what the daemon and `prestart` use.
"""
