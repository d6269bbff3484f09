"""Takes secrets out of command lines before they leave the host.

Pure. Errs on the side of hiding: a hidden value costs a word on a screen, a shown one
costs a key. What monitoring needs from an argv (paths, ports, sizes, model names, hashes
of blobs) stays. The number of arguments never changes, and redacting twice changes
nothing more. Runs on the host under Python 3.6 or newer, standard library only.

Shapes of well-known keys: the vendors' documents of their prefixes, as secret scanners
list them (gitleaks' and trufflehog's rule sets).
"""

import re

HIDDEN = "***"

#: Words that make a name the name of a secret, in the name's normal form (lower case,
#: parts joined by "-"). "token" only at the end: --max-tokens, --tokenizer are none.
_SECRET_NAME = re.compile(
    r"(?:^|-)(?:"
    r"(?:[a-z0-9]*(?:api|access|secret|private|auth|account|client|signing|encryption|master|admin"
    r"|license|shared|session|deploy|app|project|service|bot|ssh|aws|gcp|azure|hf|hft|openai|anthropic"
    r"|wandb|ngrok|tailscale)-?)keys?"
    r"|[a-z0-9]*token|tokens?-?auth|hft"
    r"|[a-z0-9]*(?:password|passwd|passphrase|passwort|pwd|passcode)s?|pass|pw"
    r"|[a-z0-9]*secrets?(?:-(?:key|token|value|id))?"
    r"|credentials?|creds?|auth|authkey|authtoken|bearer|authorization|cookies?|signature|sig|jwt|otp|pin"
    r")$"
)
#: Names that end like a secret's, but whose value is a word that monitoring may show.
_HARMLESS_NAME = re.compile(
    r"(?:^|-)(?:(?:max|min|num|n|pad|eos|bos|unk|sep|cls|mask|image|audio|video|stop|start|end|per|per-second"
    r"|special|draft|context|new|first|next|time-per|reasoning|think|sort|primary|foreign|partition)"
    r"-(?:new-)?(?:token|key)s?|no-auth|disable-auth|enable-auth|trust-remote-code)$"
)
#: What a name's value may be without being a secret: the switch itself.
_SWITCH = re.compile(r"^(?:true|false|yes|no|on|off|none|null|0|1|auto|required|)$", re.I)

_NAME = r"[A-Za-z][A-Za-z0-9_.\-]{0,63}"
_FLAG = re.compile(r"^--?(%s)$" % _NAME)
_FLAG_VALUE = re.compile(r"^(--?|/)?(%s)(=|:=|:)(.*)$" % _NAME, re.S)
_LOOKS_LIKE_FLAG = re.compile(r"^--?[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*(?:=.*)?$", re.S)

_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{0,31}://)([^/?#\s\"'<>@]*(?:@[^/?#\s\"'<>@]*)*)@")
_QUERY = re.compile(r"([?&;#])(%s)=([^&;#\s\"'<>]*)" % _NAME)
_SCHEME = re.compile(r"\b(bearer|basic|digest|negotiate|apikey|token)(\s+|%20)([^\s\"',;]+)", re.I)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?[a-z0-9\-]{0,40}(?:api-key|apikey|auth-token|access-token"
    r"|auth-key|secret|token))(\s*:\s*)([^\"'\r\n]+)",
    re.I,
)
_ASSIGNED = re.compile(r"([\"']?)(%s)\1(\s{0,8}(?::=|=>|[:=])\s{0,8})" % _NAME)
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s\"',;&|)}\]]+")
_SPACED_FLAG = re.compile(r"(?<![\w\-])(--?)(%s)(\s{1,8})(\"[^\"]*\"|'[^']*'|[^\s\"']+)" % _NAME)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|$)", re.S)
_KNOWN_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|sk-[A-Za-z0-9_\-]{8,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{8,}"  # OpenAI, Stripe
    r"|(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_\-]{16,}"  # GitLab
    r"|xox[abeoprs]-[A-Za-z0-9\-]{8,}|xapp-[A-Za-z0-9\-]{8,}"  # Slack
    r"|(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-.]{16,}"  # Google
    r"|nvapi-[A-Za-z0-9_\-]{16,}"  # NVIDIA
    r"|gsk_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{16,}|rpa_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{16,}"
    r"|pypi-[A-Za-z0-9_\-]{16,}|npm_[A-Za-z0-9]{16,}|dckr_pat_[A-Za-z0-9_\-]{16,}"
    r"|SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|tskey-[A-Za-z0-9\-]{16,}|dop_v1_[a-f0-9]{32,}"
    r"|eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"  # JSON web token
    r")"
)
#: Programs whose short flags take a secret: those given apart, those glued to the flag.
_SHORT_FLAGS = {
    "sshpass": (("-p",), ("-p",)),
    "redis-cli": (("-a",), ()),
    "mysql": ((), ("-p",)),
    "mysqldump": ((), ("-p",)),
    "mysqladmin": ((), ("-p",)),
    "mariadb": ((), ("-p",)),
    "curl": (("-u", "-U", "--user", "--proxy-user"), ("-u", "-U")),
    "wget": ((), ()),
    "smbclient": (("-U",), ("-U",)),
    "ldapsearch": (("-w",), ("-w",)),
}
_ENV_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|SIGNATURE|PRIVATE|BEARER|JWT|LICENSE|SALT", re.I
)


def is_secret_name(name):
    """True where a flag, variable or field of this name holds a secret."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", name.lstrip("-/"))
    normal = re.sub(r"[_.\-]+", "-", spaced).strip("-").lower()
    if _HARMLESS_NAME.search(normal):
        return False
    return bool(_SECRET_NAME.search(normal))


def may_send_variable(name):
    """False for an environment variable that must not be sent whatever the client allows."""
    return not _ENV_NAME.search(name)


def redact_text(text):
    """A text (a shell line, a URL, a process title) without its secrets."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _USERINFO.sub(_hide_userinfo, text)
    text = _HEADER.sub(_hide_header, text)
    text = _SCHEME.sub(_hide_scheme, text)
    text = _QUERY.sub(_hide_query, text)
    text = _SPACED_FLAG.sub(_hide_spaced, text)
    text = _hide_assigned(text)
    return _KNOWN_KEYS.sub(HIDDEN, text)


def redact_argv(argv):
    """A command line's arguments without their secrets, as many as before."""
    if not argv:
        return []
    program = argv[0].rpartition("/")[2]
    apart, glued = _SHORT_FLAGS.get(program, ((), ()))
    shown = [redact_text(argv[0])]
    hiding = ""  # "", "next" or "all" (to the next flag)
    for argument in argv[1:]:
        if hiding and not _LOOKS_LIKE_FLAG.match(argument):
            shown.append(argument if _SWITCH.match(argument) else HIDDEN)
            if hiding == "next":
                hiding = ""
            continue
        hiding = ""
        flag = _FLAG.match(argument)
        if argument in apart:
            shown.append(argument)
            hiding = "next"
        elif flag and is_secret_name(flag.group(1)):
            shown.append(argument)
            # vllm's --api-key takes any number of keys
            hiding = "all" if argument.endswith(("key", "keys")) else "next"
        elif any(argument.startswith(short) and len(argument) > 2 for short in glued):
            shown.append(argument[:2] + HIDDEN)
        else:
            shown.append(_redact_argument(argument))
    return shown


def _redact_argument(argument):
    match = _FLAG_VALUE.match(argument)
    if match and not match.group(4).startswith("//"):
        prefix, name, between, value = match.groups()
        if is_secret_name(name) and not _SWITCH.match(value):
            return (prefix or "") + name + between + HIDDEN
    return redact_text(argument)


def _hide_userinfo(match):
    return match.group(1) + HIDDEN + "@"


def _hide_header(match):
    return match.group(1) + match.group(2) + HIDDEN


def _hide_scheme(match):
    word, gap, value = match.groups()
    # "token limit", "basic setup": prose, unless it looks like a credential
    if word.lower() in ("bearer", "apikey") or re.search(r"[0-9=+/_]", value) or len(value) > 24:
        return word + gap + HIDDEN
    return match.group(0)


def _hide_query(match):
    mark, name, value = match.groups()
    if name.lower() == "key" or is_secret_name(name) or name.lower().startswith("x-amz-"):
        return "%s%s=%s" % (mark, name, HIDDEN)
    return match.group(0)


def _hide_spaced(match):
    dashes, name, gap, value = match.groups()
    if not is_secret_name(name) or _LOOKS_LIKE_FLAG.match(value) or _SWITCH.match(value):
        return match.group(0)
    return dashes + name + gap + HIDDEN


def _hide_assigned(text):
    """Hide what follows ``name =`` or ``name:``; the value of one may be another (a=b=c)."""
    shown = []
    done = position = 0
    while True:
        match = _ASSIGNED.search(text, position)
        if match is None:
            return "".join(shown) + text[done:]
        position = match.end()
        value = _VALUE.match(text, position)
        if value is None or not is_secret_name(match.group(2)):
            continue
        bare = value.group().strip("\"'")
        if not _SWITCH.match(bare) and not bare.startswith("//"):
            shown += [text[done:position], HIDDEN]
            done = position = value.end()
