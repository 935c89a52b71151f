import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';
const stored = 'headgate-theme';

function read(): Theme {
	const text = localStorage.getItem(stored);
	return text === 'light' || text === 'dark' ? text : 'system';
}

export const theme = signal<Theme>(read());
/** Increases when colours change, for charts, which CSS cannot restyle. */
export const colours = signal(0);

const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', () => colours.value++);

effect(() => {
	const chosen = theme.value;
	document.documentElement.dataset['theme'] = chosen;
	if (chosen === 'system') localStorage.removeItem(stored);
	else localStorage.setItem(stored, chosen);
	colours.value = colours.peek() + 1;
});
