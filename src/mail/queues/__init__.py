"""What wakes workers up: one module per queue, all behind `mail.core.ports.TurnQueue`."""
