module github.com/samebit/samebit

go 1.26
