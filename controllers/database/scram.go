package database

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/xdg-go/stringprep"
)

const (
	// scramIterations is PostgreSQL's own default (scram_iterations).
	scramIterations = 4096
	scramSaltBytes  = 16
)

// scramVerifier is what PostgreSQL stores for a password under SCRAM-SHA-256. The salt is derived from the Database's UID and the
// user, so that the verifier of an unchanged password is the same in every pass and in every manager: an aim that holds it keeps
// its revision. A salt need not be secret, only different for each user and database.
func scramVerifier(databaseUID, user, password string) (string, error) {
	// Clients prepare the password before they hash it; a server's verifier must be made of the same bytes. What cannot be
	// prepared is used as it is, as PostgreSQL does.
	prepared, err := stringprep.SASLprep.Prepare(password)
	if err != nil {
		prepared = password
	}
	seed := sha256.Sum256([]byte("plimsoll scram salt\x00" + databaseUID + "\x00" + user))
	salt := seed[:scramSaltBytes]
	salted, err := pbkdf2.Key(sha256.New, prepared, salt, scramIterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash the password of %s: %w", user, err)
	}
	stored := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, encode(salt), encode(stored[:]), encode(mac(salted, "Server Key"))), nil
}

func mac(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}
