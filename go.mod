module github.com/plimsoll-dev/plimsoll-operator

go 1.26.0
