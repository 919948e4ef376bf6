// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package strict reads JSON that must not be guessed at: encoding/json keeps the last of two equal keys and replaces
// bad UTF-8 without a word; in a file that says which weights are whose, both are errors.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Document reads data, which must be one JSON object and nothing more but white space. It calls field with each key;
// field reads the key's value from dec, and no more.
func Document(data []byte, field func(dec *json.Decoder, key string) error) error {
	if !utf8.Valid(data) {
		return errors.New("found bytes that are not UTF-8: need JSON in UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := Object(dec, func(key string) error { return field(dec, key) }); err != nil {
		return err
	}
	if token, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("found %v after the JSON object: need its end", either(token, err))
	}
	return nil
}

// Object reads the object that comes next in dec. It refuses a key that was there before.
func Object(dec *json.Decoder, field func(key string) error) error {
	if err := open(dec, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return invalid(err)
		}
		key := token.(string) // the decoder lets no other token through here
		if seen[key] {
			return fmt.Errorf("%q is there twice: need each name once", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return invalid(err)
}

// Array reads the array that comes next in dec, calling item for each element, which item reads.
func Array(dec *json.Decoder, item func() error) error {
	if err := open(dec, '[', "an array"); err != nil {
		return err
	}
	for dec.More() {
		if err := item(); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return invalid(err)
}

// String reads the string that comes next in dec.
func String(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", invalid(err)
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("found %v: need a string", token)
	}
	return s, nil
}

// Value reads whatever comes next in dec, as it stands.
func Value(dec *json.Decoder) (json.RawMessage, error) {
	var value json.RawMessage
	err := dec.Decode(&value)
	return value, invalid(err)
}

// Size reads the whole number that comes next in dec: 0 to 2^63-1, written as digits alone.
func Size(dec *json.Decoder) (int64, error) {
	token, err := dec.Token()
	if err != nil {
		return 0, invalid(err)
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("found %v: need a whole number", token)
	}
	n, err := number.Int64()
	if err != nil || n < 0 || number[0] == '-' {
		return 0, fmt.Errorf("found %v: need a whole number from 0 to 2^63-1", number)
	}
	return n, nil
}

func open(dec *json.Decoder, delim json.Delim, what string) error {
	token, err := dec.Token()
	if err != nil {
		return invalid(err)
	}
	if token != delim {
		return fmt.Errorf("found %v: need %s", token, what)
	}
	return nil
}

// invalid says that err, if any, is about the JSON.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("invalid JSON: %w", err)
}

func either(token json.Token, err error) any {
	if err != nil {
		return err
	}
	return token
}
