// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const lastRule = 14

var (
	ruleHeading = regexp.MustCompile(`(?m)^## (R\d+) .*$`)
	linkOrName  = regexp.MustCompile("\\]\\(([a-z0-9_]+\\.go)\\)|`([A-Za-z0-9_.]+)`")
)

// TestRules holds CONTRACT.md to the package: every rule is there once, in order, and the code and the tests that it names
// exist, the code in the file that it names.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := declarations(t)
	headings := ruleHeading.FindAllSubmatchIndex(text, -1)
	if len(headings) != lastRule+1 {
		t.Fatalf("CONTRACT.md has %d rules: need R0 to R%d", len(headings), lastRule)
	}
	named := map[string]bool{}
	for i, h := range headings {
		name := string(text[h[2]:h[3]])
		if want := fmt.Sprintf("R%d", i); name != want {
			t.Errorf("rule %s: need %s here", name, want)
		}
		body, _, _ := strings.Cut(string(text[h[1]:]), "\n## ")
		_, ties, _ := strings.Cut(body, "\nCode: ")
		code, tests, found := strings.Cut(ties, "\nTests: ")
		if !found {
			t.Errorf("%s: no lines that begin with Code: and Tests:", name)
		}
		file := ""
		for _, m := range linkOrName.FindAllStringSubmatch(code, -1) {
			if m[1] != "" {
				file = m[1]
			} else if file != "" && !slices.Contains(declared[file], m[2]) {
				t.Errorf("%s: %s does not declare %s", name, file, m[2])
			}
		}
		count := 0
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(tests, -1) {
			named[m[1]] = true
			if count++; !slices.Contains(declared["tests"], m[1]) {
				t.Errorf("%s: there is no test %s", name, m[1])
			}
		}
		if count == 0 {
			t.Errorf("%s names no test", name)
		}
	}
	// The measurements and the checks of everything at once belong to no single rule.
	for _, test := range declared["tests"] {
		if !named[test] && !slices.Contains([]string{"TestRules", "TestWitness", "TestAccuracy", "TestFunctionDigest"}, test) {
			t.Errorf("%s is named by no rule of CONTRACT.md", test)
		}
	}
}

// declarations are the functions, methods (Type.Method) and constants of each file, and all tests under "tests".
func declarations(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		key := file
		if strings.HasSuffix(file, "_test.go") {
			key = "tests"
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if name := functionName(d); key != "tests" || strings.HasPrefix(name, "Test") {
					declared[key] = append(declared[key], name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, is := s.(*ast.ValueSpec); is && key != "tests" {
						for _, n := range v.Names {
							declared[key] = append(declared[key], n.Name)
						}
					}
				}
			}
		}
	}
	return declared
}

// functionName is a function's name, with its type ahead where it is a method.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	if generic, is := of.(*ast.IndexExpr); is {
		of = generic.X
	}
	return of.(*ast.Ident).Name + "." + d.Name.Name
}
