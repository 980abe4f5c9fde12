"""Texts of our own for training and testing small tokenizers: many scripts, code, odd bytes."""

PASSAGES = {
    "english": [
        "The ring keeps what one token leaves behind, and a fold brings the oldest records into the "
        "state. Nothing is written twice; nothing that was rejected has to be taken back.",
        "I'm sure they'll say it's fine, we've seen it before and you'd agree. DON'T shout: IT'S "
        "LATE, WE'RE TIRED, I'LL GO, THEY'VE LEFT, HE'D KNOW. The '80s weren't like that; 'tis true.",
        "Dear reader, on 14 March 2024 at 10:45 the price rose by 3.5% to $1,299.00 (about 1.2e3 "
        "euros). Call +44 20 7946 0958, or write to someone@example.org; see https://example.org/a?b=c.",
    ],
    "code": [
        "def fold(state, records):\n    for key, value, gate in records:\n        state = state * exp(gate)"
        "\n        state += outer(value, key)\n\treturn state  # tabs\tand spaces\n\n\nif __name__ == "
        "'__main__':\n    print(fold([], {}))\n",
        "template <class T>\nclass Result {\n public:\n  bool ok() const { return held_.index() == 0; }\n"
        "  // never null\n  T* operator->() { return &value(); }\n};\n#include <vector>\n",
        '{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": '
        '"string"}}}, "required": ["city"], "n": [1, 2.5, -3e-7, null, true]}\r\n',
    ],
    "hindi": [
        "हिन्दी भारत की राजभाषा है और देवनागरी लिपि में लिखी जाती है। क्या आप मेरी सहायता कर सकते हैं? "
        "वर्ष २०२४ में १२ महीने हैं।",
        "नमस्ते दुनिया, यह एक छोटा सा वाक्य है जो शब्दों को जोड़ता है।",
    ],
    "thai": [
        "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์ สวัสดีครับ ยินดีต้อนรับ ๑๒๓",
        "กำลังทดสอบการตัดคำ น้ำและที่นี่",
    ],
    "chinese": [
        "人工智能正在改变世界。我们今天学习汉字,明天学习数学!价格是一百二十三元(¥123)。",
        "漢字とひらがなとカタカナを混ぜた文章です。「こんにちは」、世界!",
    ],
    "korean": ["안녕하세요 세계, 한국어 문장을 나누는 시험입니다. 2024년 3월 14일."],
    "arabic": ["السَّلامُ عليكم، هذا نصٌّ قصيرٌ للاختبار. ١٢٣ كتابًا.", "שָׁלוֹם עולם, זה משפט קצר."],
    "russian": ["Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка, йод, 100 рублей."],
    "vietnamese": ["Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ, đường phố Hà Nội, người Việt Nam."],
    "emoji": [
        "👋🏽 hello 👨‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 🇩🇪🇫🇷 flags, 1️⃣2️⃣ keycaps, ❤️‍🔥 and ☺️ or 😀😃😄",
        "🧑🏿‍🚀🚀🌍 → ∑ ∫ √ ≠ ≤ ≥ ½ ² ³ № ™ © « » „quotes“ — dashes – … ‰",
    ],
}

# What goes wrong elsewhere: line ends, runs of white space, marks, case, widths, sentinels.
CASES = [
    "",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "a\n\n\nb",
    " \n \n",
    "\n \n a",
    "a \n\n  b",
    "a\rb",
    "a\r\nb\r\n\r\nc",
    "\r\r\r",
    "\n\r\n\r",
    "x\n" * 40,
    "\n" * 100,
    " " * 100,
    " " * 99 + "x",
    "\t\t\tx \t y",
    "  leading and trailing  ",
    "a  b   c    d",
    "a\u00a0b \u00a0\u3000c\u2028d\u2029e\u0085f\u180eg\u200bh\ufeffi",
    "a\u000b\u000cb\u001cc\u001fd",
    "\u3000\u3000\u4f60\u597d",
    "it's IT'S it'S 's 'S '\u017f don't'll've 'x ''s 'llama 're 'rex 'v 'l",
    "I'M he'D we'Re they'vE",
    "1234567890 12,345.67 ٣٤٥ ⅷ ① ½ x2 2x 3rd",
    "foo_bar-baz.qux/quux:corge;grault,garply!waldo?fred(plugh)[xyzzy]{thud}",
    "!!!???...\n\n",
    " !\n?",
    "...\r\n...",
    "= = == === ====\n====",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "e\u0301 \u00e9 e\u0301e\u0301",
    "\u0301\u0301 \u0301a .\u0301 1\u0301 \n\u0301",
    "a\u0301\u0327\u0316 a\u0327\u0301 q\u0307\u0323 \u1e0b\u0323",
    "\u1100\u1161\u11a8 \u1112\u1161\u11ab\uac00\u11a8",
    "\u212b \u2126 \u1fef \u00c5 A\u030a \u0958 \u0915\u093c \ufb1d",
    "\u0344 \u0340\u0341 \u0f73 \u2adc \U0001d15e \ufa10",
    "ﬀ ﬁ Ⅷ ｆｕｌｌ ｗｉｄｔｈ ①",
    "\u0c15\u0c3c\u0301 \u09fe\u0301 a\u1ac1\u0327 \U00011935\U00011930",
    "\U0001cc00 \ua7cb\u0897 \U00010d40\U00016d70",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3fd",
    "\u0000\u0001\u007f\u0080",
    "\ue000\uffff\U0010ffff\ufffd",
    "Zalgo: Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324 text",
    "ǅ ŉ ß ẞ İ ı ﬅ",
    "mixed\u4e2d\u6587and English\u0939\u093f混ぜる",
    "a" * 300,
    "ab" * 150,
    "abc" * 99 + " " + "the " * 50,
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_end|>",
    "<|im_end|><|im_end|>x<|im_end",
    "<|im_<|im_start|>start|>",
    "<think></think><tool_call>\n{}\n</tool_call>",
    "<|endoftext|>\u0301 after a mark",
    "< |im_end|> <|im_end |> <|IM_END|>",
]

# Pools that random texts are drawn from, character by character.
POOLS = [
    "abcdefghij ABC'sStTdD.,!?-_ \n\t",
    "  \n\r\t\u00a0\u3000\u2028x'",
    "'sStTrReEvVmMlLdD\u017f ",
    "0123456789١२½Ⅷ ,.a",
    "\u0939\u093f\u0928\u094d\u0926\u0940\u0e2a\u0e27\u0e31\u0e35 \u0301a.",
    "e\u0301\u0327\u0316\u0323\u0307\u0345\u1100\u1161\u11a8\uac00 o",
    "中文漢字かなカナ,。 a1\n",
    "👨👩👧\u200d🏽️\ufe0f🇩🇪 x",
    "<|im_endstar>think/ \n",
    "\u180e\u200b\u200c\u200d\u00ad\ufeff\u0085\u001f\u0000 a",
]
