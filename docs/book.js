// A column of a table has about ten characters on a phone. This marks where long names such as
// `a::long_name` break, which is anywhere otherwise. The marks are no text: searching and copying do
// not see them.
const LENGTH_MAX_IN_CELL = 12;
const LENGTH_MAX_IN_TEXT = 24;
// On a screen, only longer names than these break.
const LENGTH_MAX_ON_SCREENS = 32;
const BREAKS = /(?<=\w(?:[_.,=/(]|::))(?=[^\d\s_.,=/():])|(?<=[a-z])(?=[A-Z])/;

for (const code of document.querySelectorAll('.content :not(pre) > code')) {
    const cell = code.closest('td, th');
    const lengthMax = cell === null ? LENGTH_MAX_IN_TEXT : LENGTH_MAX_IN_CELL;
    const parts = code.textContent.split(BREAKS);
    if (code.textContent.length > lengthMax) {
        code.replaceChildren(...parts.flatMap((part) => [document.createElement('wbr'), part]).slice(1));
        code.classList.toggle('long', code.textContent.length > LENGTH_MAX_ON_SCREENS);
    }
}
