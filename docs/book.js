// A column of a table has about ten characters on a phone. This marks where long names such as
// `a::long_name` may break: between their words. The marks are no text, so they are not copied.
const LENGTH_MAX_IN_CELL = 12;
const LENGTH_MAX_IN_TEXT = 24;
// On a screen, only longer names than these break.
const LENGTH_MAX_ON_SCREENS = 32;
const BREAKS = /(?<=\w(?:[_.,=/(]|::))(?=[^\d\s_.,=/():])|(?<=[a-z])(?=[A-Z])/;

// The words of a search whose result this page is. mdBook highlights only names without marks.
const found = new URLSearchParams(location.search).get('highlight')?.toLowerCase().split(' ') ?? [];

for (const code of document.querySelectorAll('.content :not(pre) > code')) {
    const cell = code.closest('td, th');
    const lengthMax = cell === null ? LENGTH_MAX_IN_TEXT : LENGTH_MAX_IN_CELL;
    const name = code.textContent;
    if (name.length <= lengthMax || found.some((word) => name.toLowerCase().includes(word))) {
        continue;
    }
    const parts = name.split(BREAKS);
    code.replaceChildren(...parts.flatMap((part) => [document.createElement('wbr'), part]).slice(1));
    code.classList.toggle('long', name.length > LENGTH_MAX_ON_SCREENS);
}
