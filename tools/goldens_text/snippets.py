"""Small templates, one feature of the language after the other, and the context they see."""

CONTEXT = {
    "name": "World",
    "text": "  Hello, Wörld! 👋🏽  ",
    "lines": "one\ntwo\r\n\nthree\n",
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "empty": [],
    "mapping": {"b": 1, "a": 2, "items": 3, "C": None},
    "users": [
        {"name": "ann", "age": 30, "tags": ["x"], "on": True, "f": {"g": 1}},
        {"name": "Bob", "age": 25, "tags": [], "on": False, "f": {"g": 0}},
        {"name": "cy", "age": 30, "on": True, "f": {}},
    ],
    "n": 7,
    "x": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "nested": {"a": {"b": [10, {"c": "deep"}]}},
    "unicode": "e\u0301\u4e2d\U0001f600",
    "quote": "it's \"quoted\" \\ \t\n\u0000\u00a0\u200b\u1234",
    "odd": {"1": "one", "key with space": 2, "é": "ü"},
}

PLAIN = r"""
{{ name }}|{{ missing }}|{{ nothing }}|{{ yes }}|{{ n }}|{{ x }}|{{ list }}|{{ mapping }}
{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345678 }} {{ 0.1 + 0.2 }} {{ 1_000 }}
{{ 'a' 'b' "c" }} {{ "tab\tnew\nline \x41\u00e9\U0001F600 \\ \' \" \q \101" }} {{ 'don\'t' }}
{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}
{{ [1, 'a', [], {}, (), (1,), (1, 2), none, true, 1.0] }}
{{ {'a': 1, 2: 'b', 'c': {'d': [1]}} }}
{{ quote }} {{ [quote] }} {{ ["it's"] }} {{ ['"'] }} {{ [unicode] }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }} {{ 10 / 5 }} {{ -x }} {{ +n }} {{ - 3 ** 2 }} {{ true + 1 }}
{{ 2 * 3 ** 2 }} {{ (1 + 2) * 3 }} {{ 1 - 2 - 3 }} {{ 2 ** 3 ** 2 }} {{ -2|abs }} {{ (-2)|abs }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ 'x' * 0 }} {{ 'x' * -1 }}
{{ 'a' ~ 1 ~ none ~ true ~ missing ~ 2.0 }} {{ 'a' ~ 'b' == 'ab' }}
{{ '%s is %d, %5.2f|%-5s|%05d|%x|%%' % ('a', 3, 1.234, 'b', 42, 255) }} {{ '%s' % 'one' }} {{ '%s' % [1] }}
{{ '%+d % d %r %e %g %g' % (1, 2, 'q', 12345.678, 0.0001, 1e20) }}
{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ (1, 2) == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 2 >= 2 }} {{ 1 < 2 == true }}
{{ 'el' in 'hello' }} {{ 2 in list }} {{ 'a' in mapping }} {{ 5 not in list }} {{ not 'x' in 'abc' }} {{ '' in 'a' }} {{ 1 in missing }}
{{ not yes }} {{ yes and no }} {{ no or 'x' }} {{ 0 or '' or 'last' }} {{ 1 and 2 }} {{ not no and yes }} {{ missing or 'm' }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ 1 if no else 2 if no else 3 }} {{ ('a' if yes) ~ 'z' }}
{{ list[0] }} {{ list[-1] }} {{ list[1:] }} {{ list[::-1] }} {{ list[:2] }} {{ list[-2:] }} {{ list[::2] }} {{ list[5:] }} {{ list[3] }}|
{{ name[0] }} {{ name[-1] }} {{ name[1:3] }} {{ name[::-1] }} {{ unicode[2] }} {{ unicode[::-1] }} {{ unicode[-1:] }} {{ name[10] }}|
{{ list[none:2] }} {{ name[4:1:-1] }} {{ name[:-100:-1] }} {{ list[100:-100:-3] }} {{ (1, 2, 3)[1:] }}
{{ nested.a.b[1].c }} {{ nested['a']['b'][0] }} {{ nested.a['b'].1.c }} {{ users[0].name }} {{ users.0.age }}
{{ mapping.b }} {{ mapping['items'] }} {{ mapping.C }} {{ mapping.zzz }}| {{ odd['key with space'] }} {{ odd.é }}
{{ name.missing }}| {{ list.missing }}| {{ n.real2 }}| {{ mapping[5] }}|
{{ name is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nothing is none }} {{ nothing is not none }} {{ mapping.zzz is defined }}
{{ name is string }} {{ n is number }} {{ yes is number }} {{ x is float }} {{ n is integer }} {{ yes is boolean }} {{ yes is true }} {{ 1 is true }} {{ no is false }}
{{ mapping is mapping }} {{ list is sequence }} {{ name is sequence }} {{ mapping is sequence }} {{ list is iterable }} {{ n is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ n is sequence }}
{{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 'a' is in ['a'] }} {{ 1 is eq 1 }} {{ 1 is lt(2) }} {{ 2 is ge 3 }} {{ 'A' is upper }} {{ 'a' is lower }} {{ none is sameas none }} {{ range is callable }}
{{ n is defined and n > 3 }} {{ missing is not defined or n }} {{ not missing is defined }} {{ 3 is not even }}
{{ text|trim }}| {{ text|upper }} {{ text|lower }} {{ 'hELLO wORLD'|capitalize }} {{ "hello-world (foo) it's"|title }} {{ 'xxaxx'|trim('x') }}
{{ name|length }} {{ unicode|length }} {{ list|count }} {{ mapping|length }} {{ missing|length }} {{ text|replace('l', 'L') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'|replace('', '-') }} {{ 5|replace(5, 6) }}
{{ missing|default('d') }} {{ nothing|default('d') }} {{ ''|default('d', true) }} {{ nothing|default('d', boolean=true) }} {{ missing|d }}| {{ 0|default(5) }}
{{ list|first }} {{ list|last }} {{ empty|first }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ list|sort }} {{ list|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ words|unique|list }}
{{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name', reverse=true)|map(attribute='name')|join('+') }} {{ users|sort(attribute='name')|map(attribute='name')|join(',') }}
{{ list|join }} {{ list|join(', ') }} {{ users|join('|', attribute='name') }} {{ 'abc'|join('.') }} {{ [1, none, 'x', 2.0]|join('-') }}
{{ list|min }} {{ list|max }} {{ list|sum }} {{ users|sum(attribute='age') }} {{ words|min }} {{ words|max(case_sensitive=true) }} {{ users|max(attribute='age') }} {{ list|reverse|list }} {{ 'abc'|reverse }}
{{ words|map('upper')|list }} {{ ['a b', 'c d']|map('replace', ' ', '_')|list }} {{ users|map(attribute='f.g', default='none')|list }} {{ users|map(attribute='tags')|list }} {{ nested.a.b|map('string')|list }}
{{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ list|select('gt', 1)|list }} {{ list|select('in', [1, 2])|list }}
{{ users|selectattr('on')|map(attribute='name')|list }} {{ users|rejectattr('on')|list|length }} {{ users|selectattr('age', 'equalto', 30)|map(attribute='name')|join(' ') }} {{ users|selectattr('tags', 'defined')|list|length }} {{ users|selectattr('f.g', '==', 1)|list|length }}
{{ mapping|items|list }} {{ mapping.items()|list }} {{ mapping.keys()|list }} {{ mapping.values()|list }} {{ mapping|dictsort }} {{ mapping|dictsort(true) }} {{ mapping|list }} {{ missing|items|list }} {{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ 'ff'|int(base=16) }} {{ '1.5'|float }} {{ 'y'|float(2.5) }} {{ 1|float }} {{ ' 12 '|int }} {{ true|int }} {{ none|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(method='floor') }} {{ 2.1|round(0, 'ceil') }} {{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ -1250|round(-2) }} {{ -1249|round(-2) }} {{ 7|round }} {{ 7|round(2) }} {{ 7|round(0, 'floor') }} {{ 1250.0|round(-2) }} {{ 1.005|round(2) }} {{ -3|abs }} {{ -2.5|abs }}
{{ 5|string + 'x' }} {{ 'a<b>'|safe }} {{ [1, 2]|string }} {{ '%s-%s'|format(1, 'b') }} {{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'f')|list }}
{{ lines|indent }}| {{ lines|indent(2, true) }}| {{ lines|indent(width=1, blank=true) }}| {{ 'a\nb'|indent('> ') }}
{{ mapping|tojson }} {{ nested|tojson }} {{ quote|tojson }} {{ unicode|tojson }} {{ [1, 1.0, 1e100, none, true, 'é<>&\'']|tojson }} {{ 'x'|tojson }} {{ none|tojson }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}
{{ nested|tojson(indent=2) }} {{ mapping|tojson(sort_keys=true) if yes }} {{ {'b': 1, 'a': [ ]}|tojson(indent=4, sort_keys=true) }} {{ unicode|tojson(ensure_ascii=true) }} {{ nested|tojson(separators=(',', ':')) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ [[]]|tojson(indent=1) }} {{ [1, [2]]|tojson(indent='\t') }}
{{ name|list }} {{ unicode|list }}
{{ text.strip() }}| {{ text.lstrip() }}| {{ text.rstrip() }}| {{ 'xyax'.strip('xy') }} {{ 'a.b.c'.split('.') }} {{ 'a.b.c'.split('.', 1) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a--b'.split('--')[-1] }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'x'.startswith('x') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.startswith('') }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ unicode.find('中') }} {{ 'abab'.rfind('b') }} {{ 'abab'.count('ab') }} {{ 'abc'.count('') }}
{{ 'aXb'.lower() }} {{ 'aXb'.upper() }} {{ 'ßé'.upper() }} {{ "they're bill's".title() }} {{ 'hELLO'.capitalize() }} {{ 'aXbX'.replace('X', 'yy') }} {{ 'aXbX'.replace('X', '', 1) }} {{ ','.join(words) }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'AB'.isupper() }} {{ 'a1'.isalnum() }} {{ 'a'.islower() }} {{ '1'.islower() }}
{{ mapping.get('a') }} {{ mapping.get('q') }} {{ mapping.get('q', 'z') }} {{ [3, 1].index(1) }} {{ [1, 1].count(1) }}
{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ dict(a=1, b='x') }} {{ dict({'c': 1}, d=2) }}
{{ namespace(a=1).a }} {{ bos_token }}{{ eos_token }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %j') }}|{{ strftime_now('') }}|
{{ (name, n) }} {{ name, n }} {{ [name,] }} {{ {'a': 1,}['a'] }} {{ ([1, 2])[0] }} {{ -list[0] }} {{ not list[0] == 3 }} {{ {'a': {'b': {}}}.a.b }} {{ {}}}
{{ list.append(4) }} {{ list }} {{ list.pop(0) }} {{ list }} {{ list.pop() }} {{ list }}
{{- name -}} x {{- name }} y {{ name -}}   z
"""

STATEMENTS = [
    "{% if yes %}a{% elif no %}b{% else %}c{% endif %}{% if no %}a{% elif n %}b{% else %}c{% endif %}{% if no %}x{% endif %}",
    "{% for i in list %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in empty %}x{% else %}none{% endfor %} {% for i in missing %}x{% else %}none{% endfor %}",
    "{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %} {% for k in mapping %}{{ k }}{% endfor %} {% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}",
    "{% for c in unicode %}[{{ c }}]{% endfor %}",
    "{% for i in list if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% else %}none{% endfor %}{% for i in list if i > 9 %}x{% else %}none{% endfor %}",
    "{% for i in [1, 2, 3, 4] %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b', 'c') }};{% endfor %}",
    "{% for i in [1, 1, 2, 2, 1] %}{{ i if loop.changed(i) else '-' }}{% endfor %}",
    "{% for i in [1, 2, 3, 4, 5] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in list %}{% set z = i %}{% endfor %}{{ z }}| {% set z = 1 %}{% for i in list %}{{ z }}{% set z = i %}{{ z }} {% endfor %}{{ z }}",
    "{% set ns = namespace(total=0, l=[]) %}{% for i in list %}{% set ns.total = ns.total + i %}{% endfor %}{{ ns.total }}{% set ns.new = 'x' %}{{ ns.new }} {{ ns.zzz is defined }}",
    "{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}{% set t = 1, 2 %}{{ t }}{% set u = (1,) %}{{ u }}",
    "{% set block %}  inner {{ name }}\n{% endset %}[{{ block }}]{% set up | upper | trim %} {{ name }} {% endset %}[{{ up }}]",
    "{% if yes %}{% set inside = 1 %}{% endif %}{{ inside }}",
    "{% macro m(a, b=2, c='x' ~ a) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1, c=none) }}{{ m(1) | length }}",
    "{% macro outer() %}{{ inner() }}{% endmacro %}{% macro inner() %}in{% endmacro %}{{ outer() }}",
    "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% set g = 'global' %}{% macro m() %}{{ g }}{% set g = 'local' %}{% endmacro %}{{ m() }}{{ g }}",
    "{% macro m() %}{{ caller('x', 2) }}{% endmacro %}{% call(a, b) m() %}<{{ a * b }}{{ name }}>{% endcall %}",
    "{% macro m(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call m('q') %}body{% endcall %}",
    "{% filter upper %}shout {{ name }}{% endfilter %} {% filter replace('a', 'b') | trim %} banana {% endfilter %}",
    "{% with a = 1, b = name %}{{ a }}{{ b }}{% set c = 5 %}{% endwith %}{{ a }}{{ c }}",
    "{% generation %}made by {{ name }}{% endgeneration %}",
    "{% raw %}{{ x }}{% if %}{% endraw %} {%- raw -%}  y  {%- endraw -%}  z",
    "a{# comment #}b{#- c -#}  d  {#- e #}  f",
    "  {# indented comment #}\nnext",
    "x\n  {% if yes %}\n    indented\n  {% endif %}\ny\n",
    "x\n  {%+ if yes %}\n    indented\n  {%+ endif +%}\ny\n\n",
    "x  \n\n  {%- if yes -%}  \n  a  \n  {%- endif -%}  \n  y",
    "{% if yes %}\n\na{% endif %}\n\nb\n\n",
    "  {{ name }}  \n  {{- name -}}  \n  {{ name }}\n",
    "  {% set a = 1 %}  {% set b = 2 %}  x",
    "line\r\nwith\rends {{ 'a\r\nb' }}\r\n",
    "\t {% if yes %}tab{% endif %} {% if yes %}x{% endif %}",
    "{{ '{{ nested }}' }} {{ \"{% raw %}\" }} {{ '}}' }} {{ {'a': '}}'}['a'] }}",
    "{% set x = {'a': {'b': 1}} %}{{ x.a.b }}{% set y = [[1, 2], [3]] %}{{ y[0][1] }}",
    "{{ 'a' if missing is defined else 'b' }} {{ (missing | default({})).x is defined }}",
    "{%- for m in users -%}{{ m.name | upper }}:{%- for t in m.tags or ['-'] -%}{{ t }}{%- endfor -%};{%- endfor -%}",
    "{{ users | map(attribute='name') | map('length') | list }} {{ users | map(attribute='name') | join(', ') | upper }}",
    "{% set d = {} %}{{ d.update({'a': 1}) }}{{ d }}",
    "{% if users[0].tags | length > 0 and users[1].on is false %}ok{% endif %}",
    "{% if not (name == 'x' or n < 3) and name in ['World'] %}ok{% endif %}",
    "{{ loop }}| {% for i in [1] %}{{ loop.index is defined }}{{ loop.zzz is defined }}{% endfor %}",
    "{% for a in [[1, [2, 3]]] %}{% for b in a[1] %}{{ loop.index }}{{ b }}{% endfor %}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% set x = 5 if yes else 6 %}{{ x }}{% set y = (1 if no) %}{{ y is defined }}",
    "{% for x in (1, 2) %}{{ x }}{% endfor %}{% for x in 'a', 'b' %}{{ x }}{% endfor %}",
    "{%if yes%}tight{%endif%}{{name}}{%set q=1%}{{q}}",
    "{{ name\n  | upper\n  | replace('W',\n 'V') }}",
    "{# multi\nline\ncomment #}x\n{# {{ a }} {% b %} #}\ny",
    "plain text only\n\n",
    "",
    "\n",
    "{{ name }}\n",
    "{",
    "a { b } c % d # e {x} }} %}",
]

# What must be refused, with jinja2's words where they are recorded.
ERRORS = [
    "{{ raise_exception('No luck: ' ~ name) }}",
    "a\nb\n{% if yes %}\n{{ raise_exception('on line 4') }}\n{% endif %}",
    "{{ missing.attribute }}",
    "{{ mapping.zzz.deeper }}",
    "{{ missing() }}",
    "{{ missing + 1 }}",
    "{{ mapping.zzz ~ mapping.zzz.x }}",
    "{{ name() }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' + 1 }}",
    "{{ 'a' < 1 }}",
    "{{ 1 / 0 }}",
    "{{ 5 % 0 }}",
    "{{ 1 in 5 }}",
    "{{ 1 in 'a' }}",
    "{% for i in 5 %}{% endfor %}",
    "{% for i in none %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{{ 5 | length }}",
    "{{ none | items | list }}",
    "{{ [1, 'a'] | sort }}",
    "{{ missing | tojson }}",
    "{{ range(1000000) }}",
    "{{ 'a'.split('') }}",
    "{{ 'a'.zzz() }}",
    "{{ list.append() }}",
    "{{ {[1]: 2} }}",
    "{% set name.x = 1 %}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ '%d' % 'x' }}",
    "{{ '%s %s' % 'x' }}",
    "{{ '%s' % (1, 2) }}",
    "{{ name[1:2:0] }}",
    "{{ -name }}",
    "{{ x | nofilter }}",
    "{{ x is notest }}",
    "{{ x | replace('a') }}",
    "{{ x | upper(1) }}",
    "{% unknown %}",
    "{% if yes %}",
    "{% for i in list %}",
    "{% endif %}",
    "{% if yes %}{% endfor %}",
    "{{ name",
    "{{ name }",
    "{% if yes",
    "{# never closed",
    "{% raw %} never closed",
    "{{ 'never closed }}",
    "{{ }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ [1 }}",
    "{{ ) }}",
    "{{ a b }}",
    "{{ 1 ? 2 }}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% for in list %}{% endfor %}",
    "{% break %}",
    "{{ f(a=1, 2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ a.b. }}",
    "{{ 1 ~ 2 + 3 }}",
]

SNIPPETS = PLAIN.strip("\n").split("\n") + STATEMENTS + ERRORS
