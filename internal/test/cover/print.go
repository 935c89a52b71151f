package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// instrument returns an equivalent Lua text in which the code that mark returns for a line runs
// before each statement of that line. The mark of a declaration in a library follows it, because a
// declaration must begin its line (internal/redisscript/link.go).
func instrument(name, text string, mark func(line int) string) (string, error) {
	stmts, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		return "", err
	}
	p := printer{mark: mark}
	p.block(stmts)
	return p.String(), nil
}

// printer writes a Lua syntax tree as text.
type printer struct {
	strings.Builder
	mark  func(line int) string
	depth int // of blocks
}

func (p *printer) f(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *printer) block(stmts []ast.Stmt) {
	indent := strings.Repeat("  ", p.depth)
	p.depth++
	for _, stmt := range stmts {
		p.f("%s", indent)
		mark := p.mark(stmt.Line())
		switch {
		case mark == "":
			p.stmt(stmt)
		case p.depth == 1 && declares(stmt):
			p.stmt(stmt)
			p.f("; %s", mark)
		default:
			p.f("%s; ", mark)
			p.stmt(stmt)
		}
		p.f(";\n")
	}
	p.depth--
}

func declares(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.LocalAssignStmt, *ast.FuncDefStmt:
		return true
	}
	return false
}

func (p *printer) stmt(stmt ast.Stmt) {
	switch s := stmt.(type) {
	case *ast.AssignStmt:
		p.f("%s = %s", list(p, s.Lhs), list(p, s.Rhs))
	case *ast.LocalAssignStmt:
		if fn, ok := only[*ast.FunctionExpr](s.Exprs); ok && len(s.Names) == 1 {
			p.f("local function %s%s", s.Names[0], p.function(fn)) // it can be recursive
			return
		}
		p.f("local %s", strings.Join(s.Names, ", "))
		if len(s.Exprs) > 0 {
			p.f(" = %s", list(p, s.Exprs))
		}
	case *ast.FuncCallStmt:
		p.f("%s", p.expr(s.Expr))
	case *ast.DoBlockStmt:
		p.f("do\n")
		p.end(s.Stmts)
	case *ast.WhileStmt:
		p.f("while %s do\n", p.expr(s.Condition))
		p.end(s.Stmts)
	case *ast.RepeatStmt:
		p.f("repeat\n")
		p.block(s.Stmts)
		p.f("until %s", p.expr(s.Condition))
	case *ast.IfStmt:
		p.f("if %s then\n", p.expr(s.Condition))
		p.block(s.Then)
		if len(s.Else) > 0 {
			p.f("else\n")
			p.block(s.Else)
		}
		p.f("end")
	case *ast.NumberForStmt:
		bounds := []ast.Expr{s.Init, s.Limit}
		if s.Step != nil {
			bounds = append(bounds, s.Step)
		}
		p.f("for %s = %s do\n", s.Name, list(p, bounds))
		p.end(s.Stmts)
	case *ast.GenericForStmt:
		p.f("for %s in %s do\n", strings.Join(s.Names, ", "), list(p, s.Exprs))
		p.end(s.Stmts)
	case *ast.FuncDefStmt:
		name := ""
		if s.Name.Func != nil {
			name = p.path(s.Name.Func)
		} else {
			name = p.path(s.Name.Receiver) + ":" + s.Name.Method
		}
		p.f("function %s%s", name, p.function(s.Func))
	case *ast.ReturnStmt:
		p.f("return %s", list(p, s.Exprs))
	case *ast.BreakStmt:
		p.f("break")
	default:
		panic(fmt.Sprintf("line %d: unexpected %T", stmt.Line(), stmt))
	}
}

func (p *printer) end(stmts []ast.Stmt) {
	p.block(stmts)
	p.f("end")
}

// function returns the text after the keyword function and the name.
func (p *printer) function(fn *ast.FunctionExpr) string {
	names := fn.ParList.Names
	if fn.ParList.HasVargs {
		names = append(names[:len(names):len(names)], "...")
	}
	inner := printer{mark: p.mark, depth: p.depth}
	inner.f("(%s)\n", strings.Join(names, ", "))
	inner.end(fn.Stmts)
	return inner.String()
}

// path returns a.b.c, which `function` requires instead of a["b"]["c"].
func (p *printer) path(expr ast.Expr) string {
	if get, ok := expr.(*ast.AttrGetExpr); ok {
		return p.path(get.Object) + "." + get.Key.(*ast.StringExpr).Value
	}
	return expr.(*ast.IdentExpr).Value
}

func (p *printer) expr(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.TrueExpr:
		return "true"
	case *ast.FalseExpr:
		return "false"
	case *ast.NilExpr:
		return "nil"
	case *ast.NumberExpr:
		return e.Value
	case *ast.StringExpr:
		return quote(e.Value)
	case *ast.IdentExpr:
		return e.Value
	case *ast.Comma3Expr:
		return one("...", e.AdjustRet)
	case *ast.AttrGetExpr:
		if key, ok := e.Key.(*ast.StringExpr); ok && identifier.MatchString(key.Value) && !keyword.MatchString(key.Value) {
			return p.prefix(e.Object) + "." + key.Value // in the original spelling: tests replace redis.call('TIME')
		}
		return p.prefix(e.Object) + "[" + p.expr(e.Key) + "]"
	case *ast.TableExpr:
		fields := make([]string, len(e.Fields))
		for i, field := range e.Fields {
			fields[i] = p.expr(field.Value)
			if field.Key != nil {
				fields[i] = "[" + p.expr(field.Key) + "] = " + fields[i]
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case *ast.FuncCallExpr:
		callee := ""
		if e.Func != nil {
			callee = p.prefix(e.Func)
		} else {
			callee = p.prefix(e.Receiver) + ":" + e.Method
		}
		return one(callee+"("+list(p, e.Args)+")", e.AdjustRet)
	case *ast.LogicalOpExpr:
		return p.binary(e.Lhs, e.Operator, e.Rhs)
	case *ast.RelationalOpExpr:
		return p.binary(e.Lhs, e.Operator, e.Rhs)
	case *ast.StringConcatOpExpr:
		return p.binary(e.Lhs, "..", e.Rhs)
	case *ast.ArithmeticOpExpr:
		return p.binary(e.Lhs, e.Operator, e.Rhs)
	case *ast.UnaryMinusOpExpr:
		return "(- " + p.expr(e.Expr) + ")"
	case *ast.UnaryNotOpExpr:
		return "(not " + p.expr(e.Expr) + ")"
	case *ast.UnaryLenOpExpr:
		return "(# " + p.expr(e.Expr) + ")"
	case *ast.FunctionExpr:
		return "function" + p.function(e)
	}
	panic(fmt.Sprintf("line %d: unexpected %T", expr.Line(), expr))
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	keyword    = regexp.MustCompile(`^(and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while)$`)
)

func (p *printer) binary(left ast.Expr, operator string, right ast.Expr) string {
	return "(" + p.expr(left) + " " + operator + " " + p.expr(right) + ")"
}

// prefix returns an expression that can be called or indexed.
func (p *printer) prefix(expr ast.Expr) string {
	text := p.expr(expr)
	switch expr.(type) {
	case *ast.IdentExpr, *ast.AttrGetExpr, *ast.FuncCallExpr:
		return text
	}
	return "(" + text + ")"
}

// one adds parentheses, which keep only the first value, if the source has them.
func one(text string, adjust bool) string {
	if adjust {
		return "(" + text + ")"
	}
	return text
}

func list(p *printer, exprs []ast.Expr) string {
	texts := make([]string, len(exprs))
	for i, expr := range exprs {
		texts[i] = p.expr(expr)
	}
	return strings.Join(texts, ", ")
}

// only returns the single element of a slice, if it has this type.
func only[T ast.Expr](exprs []ast.Expr) (T, bool) {
	var none T
	if len(exprs) != 1 {
		return none, false
	}
	e, ok := exprs[0].(T)
	return e, ok
}

func quote(text string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range []byte(text) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\%03d", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
