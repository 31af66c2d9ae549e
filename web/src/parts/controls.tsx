// Buttons and fields: React Aria's, which know keyboards and screen readers, with our looks and one way to say what is wrong.
import type { ReactNode } from "react";
import {
  Button as AriaButton,
  Checkbox as AriaCheckbox,
  FieldError,
  Input,
  Label,
  ListBox,
  ListBoxItem,
  Menu,
  MenuItem,
  MenuTrigger,
  Popover,
  Radio,
  RadioGroup,
  Select,
  SelectValue,
  Text,
  TextField,
  type ButtonProps,
} from "react-aria-components";
import { useMay, type Operation } from "../api/queries";
import { bytes, parseBytes } from "./format";
import { Icon, type IconName } from "./icons";

type Look = "plain" | "primary" | "danger" | "quiet";

/** `needs`: the operation that it asks for; whoever may not is not shown it. */
export function Button({ look = "plain", icon, needs, children, ...props }: Omit<ButtonProps, "children"> & { look?: Look; icon?: IconName; needs?: Operation; children?: ReactNode }) {
  const may = useMay();
  if (needs && !may(needs)) return null;
  return (
    <AriaButton {...props} className={`button ${look}`}>
      {icon && <Icon name={icon} />}
      {children}
    </AriaButton>
  );
}

/** A link that looks like a button: it leads to another page. */
export function ButtonLink({ href, look = "plain", icon, needs, children }: { href: string; look?: Look; icon?: IconName; needs?: Operation; children: ReactNode }) {
  const may = useMay();
  if (needs && !may(needs)) return null;
  return (
    <a href={href} className={`button ${look}`}>
      {icon && <Icon name={icon} />}
      {children}
    </a>
  );
}

type FieldProps = {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** What it is for, under the field. */
  help?: ReactNode;
  /** What is wrong with the value, said when there is one. */
  wrong?: string | null;
  type?: "text" | "password" | "number";
  required?: boolean;
  autoFocus?: boolean;
  placeholder?: string;
  autoComplete?: string;
  disabled?: boolean;
};

export function Field({ label, value, onChange, help, wrong, type = "text", required, autoFocus, placeholder, autoComplete = "off", disabled }: FieldProps) {
  return (
    <TextField
      className="field"
      value={value}
      onChange={onChange}
      isInvalid={Boolean(wrong)}
      isRequired={required ?? false}
      isDisabled={disabled ?? false}
      type={type}
      autoComplete={autoComplete}
      validationBehavior="aria"
    >
      <Label>{label}</Label>
      <Input placeholder={placeholder} autoFocus={autoFocus} spellCheck={false} />
      {help && <Text slot="description" className="help">{help}</Text>}
      <FieldError className="wrong">{wrong}</FieldError>
    </TextField>
  );
}

/** What is wrong with a size as it was typed; null when nothing is. An empty one is wrong only where one is needed. */
export function wrongSize(text: string, { needed = true, atLeast = 1, atMost = Infinity }: { needed?: boolean; atLeast?: number; atMost?: number } = {}): string | null {
  if (text.trim() === "") return needed ? "Say how large it is to be, as in 20 GiB." : null;
  const size = parseBytes(text);
  if (size === null) return "This is no size. Write a number and a unit, as in 20 GiB or 512M.";
  if (size < atLeast) return `This is too small: at least ${bytes(atLeast)}.`;
  if (size > atMost) return `This is too large: at most ${bytes(atMost)}.`;
  return null;
}

/** What is wrong with a name as it was typed, before the node is asked. */
export function wrongName(text: string, taken: readonly string[] = []): string | null {
  if (text.trim() === "") return "Give it a name.";
  if (/[\s/\\]/.test(text)) return "A name has no blanks and no slashes.";
  if (taken.some((name) => name.toLowerCase() === text.toLowerCase())) return `There is already one called ${text}.`;
  return null;
}

export type Option<T extends string> = { id: T; title: string; detail?: string };

/** One of several: a list that opens. */
export function Choice<T extends string>({ label, value, onChange, options, help }: {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: Option<T>[];
  help?: ReactNode;
}) {
  return (
    <Select className="field" selectedKey={value} onSelectionChange={(key) => key !== null && onChange(String(key) as T)}>
      <Label>{label}</Label>
      <AriaButton className="select">
        <SelectValue>{({ selectedText }) => selectedText || "Choose"}</SelectValue>
        <Icon name="down" />
      </AriaButton>
      {help && <Text slot="description" className="help">{help}</Text>}
      <Popover className="popover">
        <ListBox className="options" items={options}>
          {(option) => (
            <ListBoxItem id={option.id} textValue={option.title} className="option">
              <Text slot="label">{option.title}</Text>
              {option.detail && <Text slot="description">{option.detail}</Text>}
            </ListBoxItem>
          )}
        </ListBox>
      </Popover>
    </Select>
  );
}

/** One of several, all in sight with what each means. */
export function Choices<T extends string>({ label, value, onChange, options }: {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: Option<T>[];
}) {
  return (
    <RadioGroup className="field choices" value={value} onChange={(key) => onChange(key as T)}>
      <Label>{label}</Label>
      <div className="choice-list">
        {options.map((option) => (
          <Radio key={option.id} value={option.id} className="choice">
            <span className="dot" aria-hidden="true" />
            <span>
              <strong>{option.title}</strong>
              {option.detail && <span className="help">{option.detail}</span>}
            </span>
          </Radio>
        ))}
      </div>
    </RadioGroup>
  );
}

/** One of a few short words, beside each other. */
export function Segments<T extends string>({ label, value, onChange, options }: {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: { id: T; title: string }[];
}) {
  return (
    <RadioGroup className="segments" aria-label={label} orientation="horizontal" value={value} onChange={(key) => onChange(key as T)}>
      {options.map((option) => <Radio key={option.id} value={option.id} className="segment">{option.title}</Radio>)}
    </RadioGroup>
  );
}

export function Check({ value, onChange, children, help, disabled }: {
  value: boolean;
  onChange: (value: boolean) => void;
  children: ReactNode;
  help?: string;
  disabled?: boolean;
}) {
  return (
    <AriaCheckbox className="check" isSelected={value} onChange={onChange} isDisabled={disabled ?? false}>
      <span className="box" aria-hidden="true"><Icon name="check" /></span>
      <span>
        {children}
        {help && <span className="help">{help}</span>}
      </span>
    </AriaCheckbox>
  );
}

/** `needs`: the operation that it asks for; whoever may not is not shown it. */
export type Action = { id: string; title: string; run: () => void; danger?: boolean; needs?: Operation };

/** What can be done with a thing. */
export function Actions({ label, actions: offered, text }: { label: string; actions: Action[]; text?: string }) {
  const may = useMay();
  const actions = offered.filter((action) => !action.needs || may(action.needs));
  if (actions.length === 0) return null;
  return (
    <MenuTrigger>
      <AriaButton className={text ? "button plain" : "button quiet only-icon"} aria-label={label}>
        {text}
        <Icon name={text ? "down" : "more"} />
      </AriaButton>
      <Popover className="popover" placement="bottom end">
        <Menu className="options" onAction={(key) => actions.find((action) => action.id === key)?.run()}>
          {actions.map((action) => (
            <MenuItem key={action.id} id={action.id} className={action.danger ? "option danger" : "option"}>
              {action.title}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
