"""The commands of the prompt about swarms."""

from mail.cli.command import Command, Completes, json_object, json_text, option, positional, switch

COMMANDS = (
    Command(
        name="swarms-get", summary="List the public swarms that the server knows.", operation="get_swarms"
    ),
    Command(
        name="swarm-register",
        summary="Register another swarm with the server (admin).",
        operation="register_swarm",
        arguments=(
            positional("name", "Its name."),
            positional("base_url", "Its URL."),
            option(
                "--auth-token", help="The key that it requires, or $VARIABLE.", completes=Completes.SECRET
            ),
            option("--metadata", help="A JSON object to store with it.", type=json_object),
            switch("--volatile", help="Only until the server restarts."),
        ),
    ),
    Command(
        name="swarm-dump", summary="Write the server's swarm to its log (admin).", operation="dump_swarm"
    ),
    Command(
        name="swarm-load-from-json",
        summary="Replace the server's swarm (admin).",
        operation="load_swarm_from_json",
        arguments=(
            positional("json_str", "An entry of swarms.json, or @file.", metavar="JSON", type=json_text),
        ),
    ),
)
