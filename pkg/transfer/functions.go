package transfer

import (
	"crypto/sha256"
	_ "embed" // the functions' SQL
	"encoding/hex"
	"strings"
)

// Function is a rule that runs within Postgres, where a round trip for each statement
// would hold the accounts' locks for as long. Its SQL is in the file of its name.
type Function struct {
	Name    string // such as core.move_money
	Version string // of its SQL
	SQL     string // creates it under Called
}

// Called is its name in the database. Another version has another name, so that the
// instances before and after a deploy each call their own.
func (f Function) Called() string { return f.Name + "_" + f.Version }

// versionDigits are enough for the versions of one function.
const versionDigits = 8

// function reads the SQL that creates a function. Its version is the hash of that, so
// none can be changed in place by mistake.
func function(name, sql string) Function {
	sum := sha256.Sum256([]byte(sql))
	f := Function{Name: name, Version: hex.EncodeToString(sum[:])[:versionDigits]}
	head := "CREATE FUNCTION " + name + "("
	if strings.Count(sql, head) != 1 {
		panic(name + " is not what its file creates")
	}
	f.SQL = strings.Replace(sql, head, "CREATE FUNCTION "+f.Called()+"(", 1)
	return f
}

var (
	//go:embed take_key.sql
	takeKeySQL string
	//go:embed move_money.sql
	moveMoneySQL string
	//go:embed open_account.sql
	openAccountSQL string

	takeKey     = function("integration.take_key", takeKeySQL)
	moveMoney   = function("core.move_money", moveMoneySQL)
	openAccount = function("core.open_account", openAccountSQL)
)

// Functions are what the database must have; migrations puts them there.
func Functions() []Function { return []Function{takeKey, moveMoney, openAccount} }
