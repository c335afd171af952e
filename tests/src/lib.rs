//! Empty on purpose: cargo wants a library in every package. The tests of the whole lie in `tests/`, and
//! `README.md` says where the test of what is.
