module tailcast/bench

go 1.22
