import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Icon } from './icon';

/** A menu of buttons, for rows with little room. */
export function Menu({ label, children }: { label: string; children: ComponentChildren }) {
	const menu = useRef<HTMLDetailsElement>(null);
	// The chosen button opens a dialog, which later restores the focus to an element that still exists.
	const shut = () => {
		menu.current!.open = false;
		menu.current!.querySelector('summary')!.focus();
	};
	useEffect(() => {
		const m = menu.current!;
		const close = (e: Event) => {
			if (m.open && !(e.type === 'pointerdown' && m.contains(e.target as Node))) m.open = false;
		};
		const key = (e: KeyboardEvent) => {
			if (e.key === 'Escape' && m.open) shut();
		};
		const left = (e: FocusEvent) => m.contains(e.relatedTarget as Node | null) || close(e);
		addEventListener('pointerdown', close);
		m.addEventListener('keydown', key);
		m.addEventListener('focusout', left);
		return () => removeEventListener('pointerdown', close);
	}, []);
	return (
		<details class="menu" ref={menu}>
			<summary aria-label={label} title={label}><Icon name="more" /></summary>
			<div class="items" onClick={shut}>{children}</div>
		</details>
	);
}
