"""Faults of what bounds hostile peers, options and rows."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="pages-clients-unbounded",
        file="pulsar_spark/client/net/page_server.py",
        old="if len(self._deadlines) >= _MAX_CLIENTS:",
        new="if False:",
        test="tests/client/net/test_page_server.py::test_slow_clients_hold_up_nobody",
    ),
    Fault(
        name="page-read-by-any-name",
        file="pulsar_spark/client/net/page_server.py",
        old="_is_loopback(host) if self.is_loopback_only else _is_address(host)",
        new="_is_loopback(host) if self.is_loopback_only else True",
        test="tests/client/net/test_page_server.py::test_elsewhere_a_name_that_nobody_listed_is_refused",
    ),
    Fault(
        name="any-callable-a-login",
        file="pulsar_spark/client/net/auth.py",
        old="    if not is_plugin:\n",
        new="    if not callable(found):\n",
        test="tests/client/net/test_auth.py::test_no_command_is_run",
    ),
    Fault(
        name="any-callable-an-interceptor",
        file="pulsar_spark/spark/options/user_code.py",
        old="if not isinstance(found, type) or "
        "not all(callable(getattr(found, each, None)) for each in methods):",
        new="if not callable(found):",
        test="tests/spark/options/test_user_code.py::test_what_is_no_class_with_the_methods_is_not_called",
    ),
    Fault(
        name="rows-choose-where-they-are-written",
        file="pulsar_spark/spark/data_source.py",
        old="return PulsarStreamWriter(parse_sink(self.options), schema)",
        new="return PulsarStreamWriter(parse_sink(read_with(self.options, schema)[0]), schema)",
        test="tests/spark/test_data_source.py::test_rows_do_not_choose_where_they_are_written",
    ),
    Fault(
        name="login-given-to-the-cluster-of-a-schema",
        file="pulsar_spark/spark/catalog_tables.py",
        old="        if login is not None:\n",
        new="        if False:\n",
        test="tests/spark/test_catalog_tables.py::test_a_login_is_not_given_to_the_cluster_that_a_schema_names",
    ),
    Fault(
        name="json-of-any-size-in-memory",
        file="pulsar_spark/client/net/http.py",
        old='if objects > _MAX_OBJECTS or objects + data.count(b",") > _MAX_VALUES:',
        new="if False:",
        test="tests/client/net/test_http.py::test_json_takes_memory_within_a_bound",
    ),
    Fault(
        name="secret-for-this-host-sent-to-a-proxy",
        file="pulsar_spark/client/net/oauth2.py",
        old="environment_proxy=not is_on_this_host(url)",
        new="environment_proxy=True",
        test="tests/client/net/test_oauth2.py::test_a_secret_for_this_host_does_not_go_to_a_proxy",
    ),
    Fault(
        name="names-in-admin-paths-that-go-up",
        file="pulsar_spark/client/net/admin.py",
        old='if name in ("", ".", ".."):',
        new="if False:",
        test="tests/client/net/test_admin.py::test_names_that_would_name_something_else_are_refused",
    ),
    Fault(
        name="redirects-followed-at-once",
        file="pulsar_spark/client/client.py",
        old="pause = lookup.pause(random.random())",
        new="pause = 0.0",
        test="tests/client/test_client.py::test_redirects_without_end_are_followed_slowly_and_in_time",
    ),
    Fault(
        name="openings-for-a-message-unbounded",
        file="pulsar_spark/protocol/reopening.py",
        old="            return crowded\n",
        new="            return 0.0\n",
        test="tests/protocol/test_reopening.py::test_openings_that_give_a_message_each_are_bounded",
    ),
    Fault(
        name="challenges-answered-at-once",
        file="pulsar_spark/protocol/connection.py",
        old="if self.heard_at >= self._next_challenge:",
        new="if True:",
        test="tests/protocol/test_connection.py::test_challenges_are_answered_once_a_second",
    ),
    Fault(
        name="a-pong-for-each-unread-ping",
        file="pulsar_spark/protocol/outgoing_queue.py",
        old="if self._urgent[-1:] != [frame]:",
        new="if True:",
        test="tests/protocol/test_connection.py::test_a_peer_that_sends_pings_and_does_not_read_gets_one_pong",
    ),
    Fault(
        name="control-characters-in-errors",
        file="pulsar_spark/errors.py",
        old="self.what = shown(what)",
        new="self.what = what",
        test="tests/test_errors.py::test_texts_of_others_cannot_write_lines_or_move_a_terminal",
    ),
)
