"""Orders of the fleet (`logagent topics`), read from the store and obeyed under every guard of this host.

An order is an approval and a hurry, never a proof. `inbox` reads and judges order files, `obey` acts on a session,
`memory` keeps what was answered, `box` is what the daemon and `prestart` hold.
"""
