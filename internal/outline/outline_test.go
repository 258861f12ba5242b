package outline

import (
	"fmt"
	"strings"
	"testing"
)

// listed writes definitions as a test compares them.
func listed(found []Definition) string {
	var b strings.Builder
	for _, d := range found {
		fmt.Fprintf(&b, "%d:%s%s\n", d.Line, strings.Repeat("  ", d.Depth), d.Text)
	}
	return b.String()
}

type sample struct{ name, path, src, want string }

func run(t *testing.T, samples []sample) {
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			src := strings.TrimPrefix(s.src, "\n")
			got, want := listed(Definitions(s.path, []byte(src))), strings.TrimPrefix(s.want, "\n")
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if crlf := listed(Definitions(s.path, []byte(strings.ReplaceAll(src, "\n", "\r\n")))); s.path != "a.go" && crlf != want {
				t.Errorf("with CRLF\n%s", crlf)
			}
		})
	}
}

func TestGo(t *testing.T) {
	run(t, []sample{
		{"all", "a.go", `
package a

import "io"

const Max, least = 1, 2

var ErrX = errorf("{")

type (
	// S is.
	S[T any] struct{ a T }
	F func(int) error
)

type I interface {
	io.Reader
	Do(x int,
		y string) (z error)
}

type A = map[string]S[int]

func New[T any](a, b int) *S[T] { return nil }

func (s *S[T]) Do(f func() struct{ x int }) (err error) {
	type inner struct{}
	return nil
}
`, `
5:const Max
7:var ErrX
11:type S[T any] struct
12:type F func(int) error
15:type I interface
17:  Do(x int, y string) (z error)
21:type A = map[string]S[int]
23:func New[T any](a, b int) *S[T]
25:func (s *S[T]) Do(f func() struct{ x int }) (err error)
`},
		{"half written", "a.go", "package a\nfunc A() {}\nfunc B( {\nfunc C() {}\n", "2:func A()\n3:func B( { func C()\n"},
		{"no Go", "a.go", "what is this", ""},
	})
}

func TestPython(t *testing.T) {
	run(t, []sample{
		{"all", "a.py", `
"""def no(): pass
class No: pass
"""
import x  # def no():

@decorator(a=1)
class A(Base, metaclass=Meta):
    '''class No:
    def no(self): ...'''
    x: int = 1

    @property
    def name(self) -> "str": return 'def no(): '

    async  def run(self, a: int = 1,  # comment: )
                   *args, b={"c": 1},
                   **kw) -> dict[str, int]:
        def inner(): pass
        class Inner:
            def no(self): pass
        return f"{a:>10}"

    class Nested:
        def deep(self): pass

def top(a, b=")"): return a
if True:
	def tabs(): pass
x = \
    def_no
def naïve(): pass
classy = 1
defer = 2
`, `
7:class A(Base, metaclass=Meta)
13:  def name(self) -> "str"
15:  async def run(self, a: int = 1, *args, b={"c": 1}, **kw) -> dict[str, int]
23:  class Nested
24:    def deep(self)
26:def top(a, b=")")
28:def tabs()
31:def naïve()
`},
		{"bracket that is not closed", "a.py", "x = foo(1,\ndef f():\n  pass\nclass A:\n  def m(self): pass\n", "2:def f()\n4:class A\n5:  def m(self)\n"},
	})
}

func TestScript(t *testing.T) {
	run(t, []sample{
		{"TypeScript", "a.ts", `
import { a } from 'x'
import type { B } from "y";

@Injectable({ a: 1 })
export abstract class Foo<T extends { a: 1 }> extends Bar<{ b: 2 }> implements Baz {
  private readonly x: number = 1;
  static #count = 0
  static { init() }
  constructor(private a: string) { super(); if (a) { return } }
  async *gen<T>(a: T): AsyncIterator<{ t: T }> { for (const x of y) { foo(x) } }
  get name(): string { return /a{2}\/"/.test("x") ? ` + "`a${ { b: '}' }.b }`" + ` : '' }
  handler = async (e: Event): Promise<void> => { f() };
  @Input() other = function () {}
  abstract area(): number
  abstract size(a: string): { w: number }
  #hidden(): void {}
  [Symbol.iterator]() {}
  plain: string
  get = 1
  "quoted"() {}
  over(a: string): void;
  over(a: any) { }
}
export default function main(a = { b: 1 }): { c: string } { function inner() {} }
export const f = <T,>(a: T): T => a
export const LIMIT = 10, other = 3;
const internal = 5
const g = async x => x
const h = function named() { return class { m() {} } }
interface I { m(): void; }
type A = { b: string } | ((c: number) => void);
export type { B }
const enum E { A, B }
declare module "m" {
  export function q(): void
  export function r(): string;
}
namespace N.M { export class C { m() {} } }
declare global { interface Window { x: 1 } }
if (a) { function no() {} }
export * from './z'
`, `
5:export abstract class Foo<T extends { a: 1 }> extends Bar<{ b: 2 }> implements Baz
9:  constructor(private a: string)
10:  async *gen<T>(a: T): AsyncIterator<{ t: T }>
11:  get name(): string
12:  handler = async (e: Event): Promise<void> =>
13:  other = function ()
14:  abstract area(): number
15:  abstract size(a: string): { w: number }
16:  #hidden(): void
17:  [Symbol.iterator]()
20:  "quoted"()
21:  over(a: string): void
22:  over(a: any)
24:export default function main(a = { b: 1 }): { c: string }
25:export const f = <T,>(a: T): T =>
26:export const LIMIT
28:const g = async x =>
29:const h = function named()
30:interface I
31:type A
33:const enum E
34:declare module "m"
35:  export function q(): void
36:  export function r(): string
38:namespace N.M
38:  export class C
38:    m()
39:declare global
39:  interface Window
`},
		{"JavaScript", "a.js", `
'use strict'
const x = require('x')
function* gen(a, b) {
  return a / b / 2
}

var re = a / b, s = 'it\'s {'
exports.run = function (a) { }
module.exports.stop = async () => { return /[/}]/ }
Foo.prototype.bar = function bar(x) {
}
module.exports = { a, b: function () {} }
class A extends (B, C) {
  m(a, { b, c } = {}) { ` + "`${`${a}`}`" + ` }
  static async n() {}
  x = 5
  y() {}
}
let K = class {
  k() {}
}
export async function last() {}
`, `
3:function* gen(a, b)
8:exports.run = function (a)
9:module.exports.stop = async () =>
10:Foo.prototype.bar = function bar(x)
13:class A extends (B, C)
14:  m(a, { b, c } = {})
15:  static async n()
17:  y()
19:let K = class
20:  k()
22:export async function last()
`},
		{"JSX", "a.jsx", `
export default function App({ a }) {
  return <div className="x">Don't {a ? <b/> : null} </div>
}
const Row = ({ x }) => (
  <tr>{x}</tr>
)
function Last() { return <p>it's</p> }
`, `
1:export default function App({ a })
4:const Row = ({ x }) =>
7:function Last()
`},
	})
}

func TestJava(t *testing.T) {
	run(t, []sample{{"all", "A.java", `
package a.b;
import java.util.*;

/** class No {} */
@Entity(name = "x")
public final class Foo<T extends Bar> extends Base implements A, B {
    private static final String S = "class No {";
    private int[] xs = {1, 2};
    private final Runnable r = () -> { go(); };
    private Object o = new Object() { public void no() {} };
    static { init(); }
    @Inject
    public Foo(int a) { super(a); if (a > 0) { return; } }
    @Override public <K> Map<K, List<T>> get(final K k, String... s) throws IOException, E2 {
        class Local { void no() {} }
        return Foo.class.cast(null);
    }
    int[] arr() { return null; }
    abstract void later(int x);
    enum Color { RED(1) { @Override int f() { return 1; } }, GREEN(2), BLUE; private final int n; Color(int n) { this.n = n; } int f() { return n; } }
    private static class Inner { void m() {} }
    record Point(int x, int y) { Point { } int sum() { return x + y; } }
    String text = """
        void no() {
        """;
    char c = '"';
    void last() {}
}
interface Shape extends A { double area(); default int n() { return 1; } }
@interface Ann { String value() default "x"; }
sealed interface S permits X {}
`, `
6:public final class Foo<T extends Bar> extends Base implements A, B
13:  public Foo(int a)
14:  public <K> Map<K, List<T>> get(final K k, String... s) throws IOException, E2
18:  int[] arr()
19:  abstract void later(int x)
20:  enum Color
20:    Color(int n)
20:    int f()
21:  private static class Inner
21:    void m()
22:  record Point(int x, int y)
22:    int sum()
27:  void last()
29:interface Shape extends A
29:  double area()
29:  default int n()
30:@interface Ann
30:  String value() default "x"
31:sealed interface S permits X
`}})
}

func TestRust(t *testing.T) {
	run(t, []sample{{"all", "a.rs", `
//! fn no() {}
#![allow(dead_code)]
use std::{fmt, io};
/* outer /* fn no() {} */ struct No; */
pub const MAX: usize = { 10 };
static NAME: &'static str = "fn no() {";
#[derive(Debug)]
pub struct Foo<'a, T: 'a> where T: Clone { a: &'a T, f: fn(i32) -> i32 }
pub struct Pair(i32, pub i32);
struct Unit;
pub(crate) enum E { A { x: i32 }, B(char) }
impl<'a, T> fmt::Display for Foo<'a, T> where T: Clone {
    const X: i32 = 1;
    type Out = i32;
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { let c = '{'; let s = r#"}"}"#; fn inner() {} Ok(()) }
    pub async unsafe fn go<F>(self, f: F) -> Result<(), Box<dyn Error>> where F: Fn(i32) -> bool { }
}
pub trait Shape: Sized { fn area(&self) -> f64; fn name(&self) -> String { String::new() } }
mod tests { use super::*; #[test] fn it_works() { assert!(true); } }
mod other;
macro_rules! my { ($x:expr) => { fn no() {} }; }
lazy_static! { static ref R: i32 = 1; }
extern "C" { fn c_call(x: i32); }
pub extern "C" fn exported(x: [u8; 4]) -> impl Fn(i32) { move |y| { } }
pub const fn k() -> i32 { 1 }
type Alias<T> = Vec<T>;
union U { a: i32, b: f32 }
unsafe impl Send for Unit {}
fn main() { println!("{}", 'a'); }
`, `
5:pub const MAX: usize
6:static NAME: &'static str
8:pub struct Foo<'a, T: 'a> where T: Clone
9:pub struct Pair(i32, pub i32)
10:struct Unit
11:pub(crate) enum E
12:impl<'a, T> fmt::Display for Foo<'a, T> where T: Clone
13:  const X: i32
14:  type Out = i32
15:  fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result
16:  pub async unsafe fn go<F>(self, f: F) -> Result<(), Box<dyn Error>> where F: Fn(i32) -> bool
18:pub trait Shape: Sized
18:  fn area(&self) -> f64
18:  fn name(&self) -> String
19:mod tests
19:  fn it_works()
21:macro_rules! my
23:fn c_call(x: i32)
24:pub extern "C" fn exported(x: [u8; 4]) -> impl Fn(i32)
25:pub const fn k() -> i32
26:type Alias<T> = Vec<T>
27:union U
28:unsafe impl Send for Unit
29:fn main()
`}})
}

func TestC(t *testing.T) {
	run(t, []sample{{"C", "a.c", `
#include <stdio.h>
#define PI 3
#define MAX(a, b) \
  ((a) > (b) ? (a) : (b))
#if 0 /* { */
#endif
typedef struct { int a; } point_t;
typedef struct list { struct list *next; } list_t, *list_p;
typedef int (*callback)(void *);
struct node { int v; void (*free)(struct node *); };
enum color { RED, GREEN };
union u { int a; };
struct node;
struct node head = { 0 };
static const int table[] = { 1, 2 };
int global = 5;
extern int foo(int a, char *b);
MODULE_LICENSE("GPL");
static inline struct node *make(int v)
{
	if (v) { return 0; }
	char c = '{', *s = "}{";
	return 0;
}
__attribute__((noreturn)) void die(const char *fmt, ...) { }
int main(void) { return MAX(1, 2); }
`, `
3:#define MAX(a, b)
7:typedef struct point_t
8:typedef struct list list_t, *list_p
9:typedef int (*callback)(void *)
10:struct node
11:enum color
12:union u
17:extern int foo(int a, char *b)
19:static inline struct node *make(int v)
25:__attribute__((noreturn)) void die(const char *fmt, ...)
26:int main(void)
`}, {"C++", "a.hpp", `
#pragma once
namespace a::b {
using V = std::vector<int>;
using namespace std;
namespace { int hidden() { return 1; } }
template <typename T, int N = (3 > 2)>
class Foo final : public Bar<T>, private Baz {
public:
  explicit Foo(int x) : x_(x), y_{1}, z_{2} { init(); }
  Foo(const Foo&) = delete;
  virtual ~Foo();
  T get() const noexcept override { return x_; }
  bool operator==(const Foo& o) const;
  void operator()(int a) { }
  operator bool() const;
  static constexpr int k = 1;
  virtual void pure() = 0;
  [[nodiscard]] auto f() -> std::function<void(int)>;
  friend class Other;
  enum class Kind : int { A, B };
  struct Inner { void m(); };
private:
  int x_{0};
  std::map<int, std::string> m_;
};
extern "C" { void c_api(int); }
template <> void special<int>(int) {}
std::function<void(int)> maker(int n) { auto l = [](int x) { return x; }; return l; }
auto lambda = [](int x) { return x; };
int Foo<int>::bar(const int *p, void (*cb)(int)) noexcept { const char *s = R"x(void no() { )x"; }
ns::Foo::~Foo() {}
std::ostream& operator<<(std::ostream& os, const Foo& f) { return os; }
template <class T> concept C = requires(T t) { t.x(); };
}
TEST(Suite, Name) { EXPECT_EQ(1, 1'000); }
`, `
2:namespace a::b
3:  using V = std::vector<int>
5:  int hidden()
6:  template <typename T, int N = (3 > 2)> class Foo final : public Bar<T>, private Baz
9:    explicit Foo(int x)
10:    Foo(const Foo&) = delete
11:    virtual ~Foo()
12:    T get() const noexcept override
13:    bool operator==(const Foo& o) const
14:    void operator()(int a)
15:    operator bool() const
17:    virtual void pure() = 0
18:    [[nodiscard]] auto f() -> std::function<void(int)>
20:    enum class Kind : int
21:    struct Inner
21:      void m()
26:  void c_api(int)
27:  template <> void special<int>(int)
28:  std::function<void(int)> maker(int n)
30:  int Foo<int>::bar(const int *p, void (*cb)(int)) noexcept
31:  ns::Foo::~Foo()
32:  std::ostream& operator<<(std::ostream& os, const Foo& f)
33:  template <class T> concept C = requires(T t)
35:TEST(Suite, Name)
`}})
}

func TestKnows(t *testing.T) {
	for path, want := range map[string]bool{"a.go": true, "x/A.JAVA": true, "a.tsx": true, "a.h": true, "a.rb": false, "go": false, "": false} {
		if Knows(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
	if got := Definitions("a.txt", []byte("func a() {}")); got != nil {
		t.Errorf("no source: %v", got)
	}
}

func FuzzDefinitions(f *testing.F) {
	for _, s := range []string{
		"class A { m() { `${a}` } }\nfunction f(", "def f(a,\n  b): pass\nclass A:\n\tdef x(): '''", "fn f<'a>() { r#\"\"# }\nimpl X { ", "template <a<b>> class X : Y { X() : a{1} {} };\n#define A(b) \\\n c",
		"@A(b) public enum E { A(1) { int f() {} }; }", "package a\nfunc (", "}{)(][", "const a = <T,>(x): {a: b} => x\nexport const b = /[/]/", "typedef struct {} a;\nint f() const -> x {", "'", "\"\\", "/*", "R\"(", "operator()()", "x:\n{",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, ext := range []string{".go", ".py", ".ts", ".java", ".rs", ".cc"} {
			last := 0
			for _, d := range Definitions("a"+ext, []byte(s)) {
				if d.Line < 1 || d.Line > strings.Count(s, "\n")+1 || d.Depth < 0 || d.Text == "" || strings.ContainsAny(d.Text, "\n\r") || len([]rune(d.Text)) > maxText {
					t.Fatalf("%s %q: %+v", ext, s, d)
				}
				if d.Line < last && ext != ".go" {
					t.Fatalf("%s %q: line %d after line %d", ext, s, d.Line, last)
				}
				last = d.Line
			}
		}
	})
}

func BenchmarkDefinitions(b *testing.B) {
	src := []byte(strings.Repeat("class A { constructor(private a: string) { if (a) { return 'x' } }\n get b(): string { return `a${1}` } }\nfunction f(a, b) { return a / b }\n", 500))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if len(Definitions("a.ts", src)) != 2000 {
			b.Fatal("something is missing")
		}
	}
}
