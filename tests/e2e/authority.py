"""Who vouches for whom, made with openssl in a folder: a CA and its certificates, an issuer and its tokens."""

import base64
import json
import shutil
import subprocess
import time

from harness import Skip


class Openssl:
    def __init__(self, folder, name):
        if shutil.which("openssl") is None:
            raise Skip("openssl is not installed")
        self.folder, self.name = folder, name

    def openssl(self, words, *more, given=None):
        command = ["openssl", *words.replace("{name}", self.name).split(), *more]
        stdin = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, **stdin).stdout


class Authority(Openssl):
    """A CA and what it signs."""

    def __init__(self, folder, name="ca"):
        super().__init__(folder, name)
        self.certificate = folder / f"{name}.pem"
        self.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 3650 -keyout {name}.key -out {name}.pem",
            "-subj", f"/CN=the authority {name}",
        )  # fmt: skip

    def sign(self, name, subject):
        """(certificate, key); both also in NAME-both.pem."""
        self.openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr", "-subj", subject)
        (self.folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self.openssl(
            f"x509 -req -in {name}.csr -CA {{name}}.pem -CAkey {{name}}.key -CAcreateserial -days 3000"
            f" -extfile {name}.ext -out {name}.pem"
        )
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        (self.folder / f"{name}-both.pem").write_text(certificate.read_text() + key.read_text())
        return certificate, key


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer(Openssl):
    """Signs tokens (JWT, RS256)."""

    NAME, AUDIENCE = "https://id.example/realms/shop", "kafka"

    def __init__(self, folder, name="issuer"):
        super().__init__(folder, name)
        self.signed = []
        self.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {name}.key")
        modulus = self.openssl("rsa -in {name}.key -noout -modulus").decode().strip().removeprefix("Modulus=")
        self.jwk = {
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": "shop-1", "e": "AQAB",
            "n": base64url(bytes.fromhex(modulus)),
        }  # fmt: skip

    def jwks(self):
        """The file with the public key."""
        path = self.folder / f"{self.name}.jwks.json"
        path.write_text(json.dumps({"keys": [self.jwk]}))
        return path

    def token(self, subject, seconds=300, algorithm="RS256", **claims):
        """Good for so many seconds from now. With the algorithm none it is not signed."""
        now = int(time.time())
        claims = {
            "iss": self.NAME, "aud": self.AUDIENCE, "sub": subject, "iat": min(now, now + seconds) - 10,
            "exp": now + seconds, "scope": "kafka", **claims,
        }  # fmt: skip
        header = {"alg": algorithm, "typ": "JWT", "kid": self.jwk["kid"]}
        signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        if algorithm == "none":
            # Clients refuse to send an empty signature.
            return f"{signed}.{base64url(b'none')}"
        signature = self.openssl("dgst -sha256 -sign {name}.key", given=signed.encode())
        self.signed.append(f"{signed}.{base64url(signature)}")
        return self.signed[-1]
