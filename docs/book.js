// A column of a table has about ten characters on a phone. This marks where long names such as
// `a::long_name` may break: between their words. The marks are no text, so they are not copied.
const LENGTH_MAX_IN_CELL = 12;
const LENGTH_MAX_IN_TEXT = 24;
// On a screen, only longer names than these break.
const LENGTH_MAX_ON_SCREENS = 32;
const SEPARATORS = /(?<=\w(?:[_.,=/(]|::))(?=[^\d\s_.,=/():])/;
const HUMPS = /(?<=[a-z])(?=[A-Z])/;
const OPTION = /^-{1,2}\w+/;

// The words of a search whose result this page is. mdBook highlights only names without marks.
const found = new URLSearchParams(location.search).get('highlight')?.toLowerCase().split(' ') ?? [];

function marked(word, lengthMax) {
    const element = document.createElement('span');
    element.classList.toggle('long', word.length > LENGTH_MAX_ON_SCREENS);
    // A word that fits, and the beginning of an option, would otherwise break at their hyphens.
    const fits = word.length <= lengthMax;
    const unbroken = fits ? word : (word.match(OPTION)?.[0] ?? '');
    if (unbroken !== '') {
        const beginning = document.createElement('span');
        beginning.textContent = unbroken;
        beginning.className = 'short';
        element.append(beginning);
    }
    const parts = word
        .slice(unbroken.length)
        .split(SEPARATORS)
        .flatMap((part) => (part.length > lengthMax ? part.split(HUMPS) : [part]));
    element.append(...parts.flatMap((part) => [document.createElement('wbr'), part]).slice(1));
    return element;
}

for (const code of document.querySelectorAll('.content :not(pre) > code')) {
    const name = code.textContent;
    if (found.some((word) => name.toLowerCase().includes(word))) {
        continue;
    }
    const lengthMax = code.closest('td, th') === null ? LENGTH_MAX_IN_TEXT : LENGTH_MAX_IN_CELL;
    // Commands that are longer break between their words.
    code.classList.toggle('short', name.length <= LENGTH_MAX_IN_CELL);
    const words = name.split(/(\s+)/).filter((word) => word !== '');
    code.replaceChildren(
        ...words.map((word) => (/\s/.test(word) ? word : marked(word, lengthMax))),
    );
}

// A number and its unit stay in one line, and so does a difference.
const page = document.querySelector('.content main');
const texts = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest('code') === null) {
        text.data = text.data
            .replace(/(?<=\d) (?=(µs|ms|s|min|KiB|MiB|kB|MB)\b|%)/g, '\u00a0')
            .replace(/ - (?=\d)/g, '\u00a0\u2212\u00a0');
    }
}
