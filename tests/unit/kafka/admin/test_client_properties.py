"""Java client properties: what is understood, what is refused and why, and the JAAS line as Java cuts it."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import ConfigError
from logagent.kafka.admin.client_properties import (
    ClientSecurity,
    LoginModule,
    client_properties,
    parse_client_properties,
    parse_jaas,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL_PLAIN = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"

# Made for this test and trusted by nobody.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIULPkGB59gDWm4Hju7j4OrO6HeFxcwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJdW5pdC10ZXN0MCAXDTI2MTEyMTE0MjAxMloYDzIxMjYxMDI4
MTQyMDEyWjAUMRIwEAYDVQQDDAl1bml0LXRlc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQrzU2dSlJ3IVKsz8nkkjikjP1sRU++osNkgw/PSlLsaFXHnrDXoq93
sRWuegS2k6OsyiCggZM8R6nM+fGXAkwno1MwUTAdBgNVHQ4EFgQUh6iaggmD8z13
wUjpx31vFarag+EwHwYDVR0jBBgwFoAUh6iaggmD8z13wUjpx31vFarag+EwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAgHRZJ14JIjb3MoiMzn+j
zWHztynBHLV8Mwz3EpYctWMCIQDZF5ISenZN0WnJ6gmLEszvjPZGzG7pnQZ41oq6
nBI0KA==
-----END CERTIFICATE-----
"""


def inline(pem: str) -> str:
    """PEM text as a properties value on one line."""
    return pem.replace("\n", "\\n")


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_client_properties(text)
    return caught.value.problems


def test_nothing_means_plaintext() -> None:
    assert parse_client_properties("") == ClientSecurity()
    assert client_properties("# nothing\n") == {"security_protocol": "PLAINTEXT"}


def test_keys_of_other_clients_are_passed_over() -> None:
    text = "bootstrap.servers=a:1\nclient.id=x\ngroup.id=y\nrequest.timeout.ms=1\nacks=all\n"
    assert client_properties(text) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_sasl_credentials_are_read_from_the_login_module(mechanism: str, module: str) -> None:
    text = (
        f"security.protocol=sasl_plaintext\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={module} required \\\n   username=\"agent\" \\\n   password='it is';\n"
    )
    assert client_properties(text) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "agent",
        "sasl_plain_password": "it is",
    }


def test_bytes_are_latin_1_and_text_is_itself() -> None:
    line = f'{SASL_PLAIN}sasl.jaas.config={PLAIN} required username=u password="žé";\n'
    assert parse_client_properties(line).password == "žé"
    assert parse_client_properties(line.encode()).password == "žé".encode().decode("latin-1")


def test_tls_from_pem_text() -> None:
    # A private key in the file is tried with a broker that wants one (tests/broker/admin/test_admin.py).
    text = f"security.protocol=SSL\nssl.truststore.type=pem\nssl.truststore.certificates={inline(CERTIFICATE)}\n"
    settings = client_properties(text)
    context = settings.pop("ssl_context")
    assert settings == {"security_protocol": "SSL"}
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert [authority["subject"] for authority in context.get_ca_certs()] == [((("commonName", "unit-test"),),)]


def test_the_host_name_check_and_tls_versions_can_be_changed() -> None:
    text = "security.protocol=SSL\nssl.endpoint.identification.algorithm=\nssl.enabled.protocols=TLSv1.3\n"
    context = client_properties(text)["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("security.protocol=HTTPS", "security.protocol: HTTPS is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.providers=x.Y", "security.providers: this security setting is not supported"),
        ("ssl.cipher.suites=X", "ssl.cipher.suites: this security setting is not supported"),
        ("sasl.login.class=X", "sasl.login.class: this security setting is not supported"),
        ("ssl.key.password=${file:/a:b}", "ssl.key.password: config providers are not resolved"),
        (
            f'{SASL_PLAIN}sasl.jaas.config={PLAIN} required username=a password="${{file:/x:password}}";',
            "sasl.jaas.config: config providers are not resolved",
        ),
        (
            f"{SASL_PLAIN}sasl.jaas.config={PLAIN} required username=a password=PASSWORD;",
            "sasl.jaas.config: the password is still PASSWORD, as in the example",
        ),
        (
            "security.protocol=SASL_SSL",
            "sasl.mechanism: GSSAPI (Kafka's default) is not supported; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER",
            "sasl.mechanism: OAUTHBEARER is not supported; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN",
            "sasl.jaas.config: is missing, and sasl.mechanism=PLAIN needs it",
        ),
        (
            f"{SASL_PLAIN}sasl.jaas.config={SCRAM} required username=a password=b;",
            f"sasl.jaas.config: {SCRAM} does not match PLAIN, which needs PlainLoginModule",
        ),
        (
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a;",
            "sasl.jaas.config: has no password",
        ),
        (
            f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.jaas.config={SCRAM} required username=a password=b tokenauth=true;",
            "sasl.jaas.config: delegation tokens (tokenauth) are not supported",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=/a.jks",
            "ssl.truststore.type: JKS (Kafka's default) stores are not read",
        ),
        (
            "security.protocol=SSL\nssl.keystore.type=PKCS12\nssl.keystore.location=/a.p12",
            "ssl.keystore.type: PKCS12 stores are not read",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/a\nssl.truststore.certificates=b",
            "ssl.truststore.location: and ssl.truststore.certificates exclude each other",
        ),
        (
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=b",
            "ssl.keystore.certificate.chain: is missing, and ssl.keystore.key is given",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/a\nssl.truststore.password=b",
            "ssl.truststore.password: PEM stores have none; a key's password is ssl.key.password",
        ),
        (
            "security.protocol=SSL\nssl.enabled.protocols=TLSv1.2,SSLv3",
            "ssl.enabled.protocols: SSLv3 is not one of TLSv1.2, TLSv1.3",
        ),
        (
            "security.protocol=SSL\nssl.endpoint.identification.algorithm=LDAPS",
            "ssl.endpoint.identification.algorithm: LDAPS is neither https nor empty",
        ),
    ],
)
def test_what_is_refused(text: str, expected: str) -> None:
    assert problems(text) == (expected,)


def test_every_problem_at_once_and_how_to_convert_a_store() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_client_properties("security.protocol=SASL_SSL\nssl.truststore.location=/a\nssl.provider=x\n")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "ssl.provider",
        "sasl.mechanism",
        "ssl.truststore.type",
    ]
    with pytest.raises(ConfigError) as caught:
        parse_client_properties("security.protocol=SSL\nssl.truststore.location=/a\n")
    assert caught.value.hint is not None and "keytool -list -rfc" in caught.value.hint


def test_a_password_is_never_in_a_message() -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required password=hunter2"
    assert "hunter2" not in " ".join(problems(text))


@pytest.mark.parametrize(
    "text",
    [
        f'{SASL_PLAIN}sasl.jaas.config={PLAIN} required username="u" password="oops"hunter2";',
        f'{SASL_PLAIN}sasl.jaas.config={PLAIN} required username="u password="hunter2";',
        f"{SASL_PLAIN}sasl.jaas.config={PLAIN} required username=u password=correct/horse hunter2;",
        f"{SASL_PLAIN}sasl.jaas.config={PLAIN} required username=u password=a&hunter2=b;",
        f'{SASL_PLAIN}sasl.jaas.config={PLAIN} "hunter2";',
        f"{SASL_PLAIN}sasl.jaas.config=hunter2 required username=u password=p;",
        'security.protocol=SASL_SSL\nsasl.mechanism=PLAIN password="hunter2"',
        'security.protocol=SASL_SSL password="hunter2"',
        "ssl.key.password\\=hunter2",
        "ssl.key.passwordhunter2",
        'security.protocol=SSL\nssl.keystore.type=PEM ssl.key.password="hunter2"\nssl.keystore.location=/k',
        "security.protocol=SSL\nssl.enabled.protocols=TLSv1.2,ssl.key.password=hunter2",
        "security.protocol=SSL\nssl.endpoint.identification.algorithm=https\\\nssl.key.password=hunter2",
    ],
)
def test_no_piece_of_a_password_that_was_written_wrongly_is_reported(text: str) -> None:
    said = problems(text)
    assert said and "hunter2" not in " ".join(said)


def test_stores_that_cannot_be_used_name_their_key() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: /nowhere/ca\.pem: No such file"):
        client_properties("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere/ca.pem\n")
    with pytest.raises(ConfigError, match=r"ssl\.truststore: "):
        client_properties("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=nonsense\n")
    other = "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=k\nssl.keystore.certificate.chain=c\n"
    with pytest.raises(ConfigError, match=r"ssl\.keystore: "):
        client_properties(other)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.B required username="u" password="p";', {"username": "u", "password": "p"}),
        ("a.B Required u=v;", {"u": "v"}),
        ("a.B required /* old */ u=v // x\n;", {"u": "v"}),
        ("a.B required u=va/lue\n;", {"u": "va"}),
        ("a.B required u=va/\nu=b;\n;", {"u": "va"}),
        (r'a.B required u="q\"\\\x\t\101\48";', {"u": 'q"\\x\tA\x048'}),
        ("a.B required u='it\"s';", {"u": 'it"s'}),
        ("a.B required u=a-b_c$d.1;", {"u": "a-b_c$d.1"}),
        ("a.B required u=é€;", {"u": "é€"}),
        ("a.B required u=a u=b;", {"u": "b"}),
        ("a.B required;", {}),
    ],
)
def test_jaas_is_cut_as_java_does(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == LoginModule("a.B", options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "login module not specified"),
        ("a.B", "control flag not specified"),
        ("a.B sometimes u=v;", "control flag in JAAS config is none of REQUIRED"),
        ("a.B required u=v", "not terminated by semi-colon"),
        ("a.B required u;", "value not specified for option 1"),
        ("a.B required a=b u=;", "value not specified for option 2"),
        ("a.B required pin=1234;", "value not specified for option 1"),
        ("a.B required u=v; c.D required;", "contains 2 login modules"),
        ("KafkaClient { a.B required u=v; };", "control flag"),
    ],
)
def test_jaas_that_java_refuses(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_jaas(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r")))
def test_any_quoted_password_comes_back(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'a.B required password="{quoted}";').options == {"password": password}


@given(st.text(max_size=40))
def test_jaas_never_fails_otherwise(text: str) -> None:
    try:
        assert parse_jaas(text).module
    except ValueError as error:
        assert "JAAS" in str(error)
