"""Secrets of well-known formats are found, and ordinary text is not reported."""

from __future__ import annotations

import pytest

from toolbox.ground.model import secret_formats

# The tokens are made up, and are put together here, so that no search for secrets finds this file.
LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"
SECRETS = [
    ("x = 'gh" + f"p_{LETTERS}'", "a token of GitHub"),
    ("github_" + f"pat_{LETTERS}", "a token of GitHub"),
    ("gl" + f"pat-{LETTERS[:20]}", "a token of GitLab"),
    ("AK" + "IAIOSFODNN7ABCDEFG", "an access key of AWS"),
    ("AI" + f"za{LETTERS[:35]}", "a key of Google"),
    ("login('h" + f"f_{LETTERS[:34]}')", "a token of Hugging Face"),
    ("s" + f"k-proj-{LETTERS}", "a key of a language model"),
    ("s" + f"k-ant-api03-{LETTERS}", "a key of a language model"),
    ("xo" + "xb-123456789012-abcdef", "a token of Slack"),
    ("s" + f"k_live_{LETTERS}", "a key of Stripe"),
    (f"AccountKey={LETTERS * 3}"[:97] + "==", "a key of an Azure account"),
    (f"ey{'J'}{LETTERS}.ey{'J'}{LETTERS}.{LETTERS}", "a JSON web token"),
    ("-----BEGIN RSA " + "PRIVATE KEY-----", "a private key"),
    ("-----BEGIN " + "PRIVATE KEY-----", "a private key"),
    ("postgresql://me:s3cretpw@db.example/x", "an address with a password"),
    ("postgresql://me:Xk3%21jf9s@db.example/x", "an address with a password"),
    ("postgresql://me:kYour$3*jf9s@db.example/x", "an address with a password"),
    ("redis://:Xk3jf9sQ2@db.example:6379/0", "an address with a password"),
    (f"ya29.c.c0{LETTERS * 3}", "a key of Google"),
    ("GOC" + f"SPX-{LETTERS[:28]}", "a key of Google"),
    ("1/" + f"/0g{LETTERS * 2}", "a key of Google"),
    ("xa" + f"pp-1-A0123456-1234-{LETTERS}", "a token of Slack"),
    ("hooks.slack" + f".com/services/T00000000/B00000000/{LETTERS[:24]}", "a token of Slack"),
    ("gl" + f"rtr-{LETTERS[:20]}", "a token of GitLab"),
    ("-----BEGIN PGP " + "PRIVATE KEY BLOCK-----", "a private key"),
    (f"x{'gh'}p_{LETTERS}", "a token of GitHub"),
    (f"1{'gl'}pat-{LETTERS[:20]}", "a token of GitLab"),
    ("GR" + f"1348941{LETTERS[:20]}", "a token of GitLab"),
    (f"token_{'AK'}IAIOSFODNN7ABCDEFG", "an access key of AWS"),
    (f"key{'AI'}za{LETTERS[:35]}", "a key of Google"),
    (f"https://example.org/a/long/path/{'AI'}za{LETTERS[:35]}", "a key of Google"),
    (f"x{'h'}f_{LETTERS[:34]}", "a token of Hugging Face"),
    ("api_" + f"org_{LETTERS[:34]}", "a token of Hugging Face"),
    (f"x{'s'}k-ant-api03-{LETTERS}", "a key of a language model"),
    (f"x{'s'}k-proj-{LETTERS}T3Blbk{'FJ'}{LETTERS}", "a key of a language model"),
    (f"my{'s'}k-{LETTERS[:20]}T3Blbk{'FJ'}{LETTERS[:20]}", "a key of a language model"),
    ("np" + f"m_{LETTERS}", "a token of npm"),
    (f"_authToken=x{'np'}m_{LETTERS}", "a token of npm"),
    ("py" + f"pi-AgEIcHlwaS5vcmc{LETTERS * 2}", "a token of PyPI"),
    (f"password:x{'py'}pi-AgENdGVzdC5weXBpLm9yZw{LETTERS * 2}", "a token of PyPI"),
    ("wandb" + f"_v1_{LETTERS * 2}", "a key of W&B"),
    (f"x{'wandb'}_v1_{LETTERS}_{LETTERS}", "a key of W&B"),
    (f"export WANDB_API_KEY='{'0123456789' * 4}'", "a key of W&B"),
    (f'"WANDB_API_KEY": "{"0123456789" * 4}"', "a key of W&B"),
    (f"- name: WANDB_API_KEY\n          value: {'0123456789' * 4}", "a key of W&B"),
    (f'{{"name":"WANDB_API_KEY","value":"{"0123456789" * 4}"}}', "a key of W&B"),
    (f'{{\\"name\\": \\"WANDB_API_KEY\\", \\"value\\": \\"{"0123456789" * 4}\\"}}', "a key of W&B"),
    (f"machine api.wandb.ai login user password {'0123456789' * 4}", "a key of W&B"),
    (f"x{'xo'}xb-123456789012-abcdef", "a token of Slack"),
    (f"0{'ey'}J{LETTERS}.ey{'J'}{LETTERS}.{LETTERS}", "a JSON web token"),
    ('db_password = "correct7horse9"', "a password or key as text"),
    ("os.environ['API_KEY'] = 'abcdef123456'", "a password or key as text"),
    ('{"access_token": "abcdef123456"}', "a password or key as text"),
    (f'wandb.login(key="{LETTERS}")', "a password or key as text"),
]
ESCAPES = ["\\n", "\\t", "\\x1b[0m", "\\u003d", "%20", "%3D", "\x1b[32m", "\\u001b[1;32m"]
HARMLESS = [
    "tokenizer = 'bert-base-uncased-2019'",
    "token = os.environ['HF_TOKEN']",
    "password = getpass()",
    "password = '<your password 1>'",
    "api_key = 'your-api-key-123'",
    "secret = 'aaaaaaaaaaaa'",
    "token = '${TOKEN1234}'",
    "df.sort_values(key='a_long_column_name_that_is_not_a_secret_1')",
    "sklearn.linear_model; sk-learn-is-a-library-with-a-long-name",
    "task-sk-1234567890123456789012345",
    "commit 5d41402abc4b2a76b9719d911017c592a1b2c3d4",
    "https://example.org:8080/path@2x.png",
    "https://user:{password}@example.org",
    "https://user:${PASSWORD}@example.org",
    "https://user:$PASSWORD@example.org",
    "https://user:***@example.org",
    "https://user:%(password)s@example.org",
    "https://user:<your password>@example.org",
    f"MKTAYIAKQRQ{'AK'}IAISFVKSHFSRQLEE",
    f"{LETTERS}{'AI'}za{LETTERS}",
    "npm_config_registry npm_lifecycle_event_of_a_script_with_a_long_name",
    "pypi-server-of-a-company-with-a-very-long-name-0123456789-0123456789",
    "task-proj-1234567890123456789012345 disk-20261128-191804-61lx-abcdef",
    "WANDB_API_KEY=$WANDB_API_KEY; commit 5d41402abc4b2a76b9719d911017c592a1b2c3d4",
    "- name: WANDB_API_KEY\n  valueFrom: {}\n- name: COMMIT\n  value: 5d41402abc4b2a76b9719d911017c592a1b2c3d4",
    "AKIA in a word, hf_ short, ghp_short",
    "-----BEGIN PUBLIC KEY-----",
]


@pytest.mark.parametrize(("text", "kind"), SECRETS)
def test_a_secret_is_found_with_its_line(text: str, kind: str) -> None:
    assert kind in dict(secret_formats.find(text)).values()
    assert (3, kind) in list(secret_formats.find(f"# one\n# two\n  {text}  \n# four"))


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize(("text", "kind"), [item for item in SECRETS if item[0][:2] in {"AK", "AI", "ey", "gl", "ya"}])
def test_a_token_is_found_after_an_escape(text: str, kind: str, escape: str) -> None:
    assert kind in dict(secret_formats.find(f'"token:{escape}{text}"')).values()
    assert kind in {found for _, found in secret_formats.find_tokens(f'"token:{escape}{text}"')}


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_is_not_a_secret(text: str) -> None:
    assert list(secret_formats.find(text)) == []


def test_the_secret_itself_is_not_told() -> None:
    told = " ".join(kind for text, _ in SECRETS for _, kind in secret_formats.find(text))
    assert not any(part in told for part in (LETTERS[:10], "correct7horse9", "s3cretpw", "abcdef"))


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ",
        "eyJa.",
        "sk-",
        "gh",
        "://a:",
        "password",
        "password = ",
        "-----BEGIN A ",
        "hf_",
        'key="',
        "WANDB_API_KEY ",
        f"WANDB_API_KEY{',' * 40}value",
        "sk-proj-",
        "npm_",
        "pypi-AgE",
        "AIza",
        "api.wandb.ai login x ",
    ],
)
def test_a_search_of_hostile_text_ends(unit: str) -> None:
    found = list(secret_formats.find(unit * (100_000 // len(unit))))
    assert len(found) <= 1
