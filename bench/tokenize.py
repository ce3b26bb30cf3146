"""Measures how fast text becomes the ids of its words, by script."""

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phonograd.bench.contestants import Say
from phonograd.bench.markdown import MB, Table, figure, text
from phonograd.bench.results import Document, result_of
from phonograd.device_runtime.text.messages import read_messages, tokenize
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary

Text = tuple[list[bytes], Counter[bytes]]  # messages, and how often they have each word

SCHEMA_VERSION = 1
WORDS, LONGEST = 5000, 6
LINES, LINE_WORDS = 5000, 12  # of a made text
LEAST_SECONDS = 1e-6  # of a run: the clock may not have moved
# What the words of a script are made of, with the marks on a letter; and what is between words.
SCRIPTS = {
    "English": ("a b c d e f g h i k l m n o p r s t u w y", " "),
    "Latin with accents": ("a b d e é è g h i í k l m n ñ o ö p r s ß t u ü ç", " "),
    "Cyrillic": ("а б в г д е ж з и к л м н о п р с т у ы ь я", " "),
    "Arabic": ("ا ب ت ج ح د ر س ش ع ف ق ك ل م ن ه و ي ة لَ", " "),
    "Devanagari": ("अ क का कि की के को ग च ज त ता थ द न ना प ब म र रा ल स है हों क्ष ज़", " "),
    "Bengali": ("আ ক কা কি কে গ চ জ ত তা দ ন না প ব বা ম র রা ল স হ য় ড়ি ন্ত", " "),
    "Hangul": (
        "가 고 구 그 기 나 는 니 다 도 라 로 를 리 마 만 보 사 서 시 아 어 에 요 은 을 이 인 자 지 하 한 했",
        " ",
    ),
    "Thai": ("ก กา กี้ ข ค คำ ง จ ช ด ได้ ต ท ที่ น นั้น บ ป ไป พ ม ไม่ ย ร รู้ ล ว ส ห อ อยู่ เ แ โ", ""),
    "Han": ("一 不 了 人 他 会 你 個 们 到 去 可 大 天 好 子 家 小 年 心 我 时 是 有 来 様 的 着 看 说 都 里", ""),
    "kana": ("あ い う か が き く け こ さ し す せ そ た だ っ つ て と な に の は ま も り れ ん ア ス ト ー", ""),
}


@dataclass(frozen=True)
class TokenizeBenchConfig:
    """text: to measure in place of made ones. rounds: runs of each, in turn."""

    text: Path | None = None
    rounds: int = 5


def bench_tokenize(config: TokenizeBenchConfig, say: Say) -> dict[str, Any]:
    """Time each text against a vocabulary of its words. Raises TextError for a text without words.

    The result has of each of the `texts`: bytes; tokens; seconds, of CPU time of this process; and bytes_a_second, by
    their median.
    """
    if config.text is None:
        texts = {script: _make_text(*made) for script, made in SCRIPTS.items()}
    else:
        messages = read_messages(config.text)
        texts = {config.text.name: (messages, Counter(word for message in messages for word in tokenize(message)))}
    vocabularies = [_vocabulary_of(counts) for _, counts in texts.values()]
    rows: list[dict[str, Any]] = [{"name": name, "seconds": []} for name in texts]
    for number in range(config.rounds):
        say(f"round {number + 1} of {config.rounds}")
        for row, (messages, _), vocabulary in zip(rows, texts.values(), vocabularies, strict=True):
            began = time.process_time()
            stream = vocabulary.encode(messages)
            row["seconds"].append(time.process_time() - began)
            row |= {"bytes": sum(len(message) + 1 for message in messages), "tokens": len(stream) - len(messages)}
    for row in rows:
        row["bytes_a_second"] = row["bytes"] / max(statistics.median(row["seconds"]), LEAST_SECONDS)
    return result_of("tokenize", SCHEMA_VERSION, made=config.text is None, rounds=config.rounds, texts=rows)


def _make_text(letters: str, between: str) -> Text:
    choose = random.Random(0)
    made = ["".join(choose.choices(letters.split(), k=choose.randint(1, LONGEST))) for _ in range(WORDS)]
    words = choose.choices(made, [1 / rank for rank in range(1, WORDS + 1)], k=LINES * LINE_WORDS)
    lines = (words[at : at + LINE_WORDS] for at in range(0, len(words), LINE_WORDS))
    messages = [between.join(line).capitalize().encode() + b"." for line in lines]
    return messages, Counter(word.encode() for word in words)


def _vocabulary_of(counts: Counter[bytes]) -> Vocabulary:
    known = [(word, count) for word, count in counts.most_common() if word not in (UNK_WORD, EOS_WORD)]
    return Vocabulary((UNK_WORD, EOS_WORD, *(word for word, _ in known)), counts=(0, 0, *(count for _, count in known)))


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    yield "Tokenizing"
    made = f", which is random words of 1 to {LONGEST} letters by Zipf's law" if document["made"] else ""
    yield (
        f"From text{made}, to the ids of its words in a vocabulary that has them: CPU time of one thread, median of "
        f"{document['rounds']} runs."
    )
    columns = {
        "text": text("name"),
        "MB/s": figure("bytes_a_second", ".0f", MB),
        "MB": figure("bytes", ".1f", MB),
        "tokens": figure("tokens", ",d"),
    }
    yield Table("Tokenizing", columns, document["texts"])
